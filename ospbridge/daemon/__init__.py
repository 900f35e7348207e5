"""The daemon: one simulator, its agents, and the environments that drive them."""
