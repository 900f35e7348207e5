"""Recordings: finished episodes in files."""
