"""The hub's messages, without I/O: what environments and the daemon say to each other."""
