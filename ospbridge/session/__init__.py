"""Drivers of the OSP client machine: for blocking callers, for trio, and through a daemon's hub."""
