"""Gymnasium environments over an agent of a simulator, direct or through a daemon's hub."""
