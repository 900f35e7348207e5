"""Simulators that this process has launched."""

from __future__ import annotations

import psutil


def simulators(pid: int | None = None) -> list[psutil.Process]:
    """Those that a process, or one that it has started, has launched and that run."""
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE and "sim" in child.cmdline():
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
