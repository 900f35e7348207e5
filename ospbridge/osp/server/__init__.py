"""The server role of OSP 1.1."""
