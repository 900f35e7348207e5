"""Sockets only: nothing here knows what the bytes mean."""
