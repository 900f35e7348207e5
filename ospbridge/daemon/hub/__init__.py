"""The daemon's side of the hub: its door, its connections, and what their requests come to."""
