"""The daemon as a service of systemd: its files put in place, taken away, and what systemd says of it."""
