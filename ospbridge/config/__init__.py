"""Configuration files of the daemon: what they say, what flags say instead, and where each value is from."""
