"""OSP 1.1 without I/O: messages, profiles, the client role and the server role."""
