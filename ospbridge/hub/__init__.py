"""The hub's messages, as msgpack and without I/O: what environments and the daemon say to each other."""
