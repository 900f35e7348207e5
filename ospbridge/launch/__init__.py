"""Simulators that the bridge starts, keeps at full speed, and ends."""
