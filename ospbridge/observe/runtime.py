"""Where a running ospbridge keeps its sockets and leases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["default_hub", "hubs", "runtime_directory"]


def runtime_directory() -> Path:
    """``$RUNTIME_DIRECTORY`` (systemd), else ``$XDG_RUNTIME_DIR/ospbridge``, else one of this user's under /tmp."""
    given = os.environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session:
        return Path(session) / "ospbridge"
    return Path(tempfile.gettempdir()) / f"ospbridge-{os.getuid()}"


def default_hub(name: str = "") -> Path:
    """Where a daemon listens unless told otherwise; ``name`` is the simulator's, where it has several."""
    return runtime_directory() / (f"hub-{name}.sock" if name else "hub.sock")


def hubs() -> list[Path]:
    """Where daemons of this user's listen for several simulators, or did."""
    return sorted(runtime_directory().glob("hub-*.sock"))
