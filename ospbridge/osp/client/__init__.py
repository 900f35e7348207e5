"""The client role of OSP 1.1: its machine, and all that it asks but for steps."""
