"""Where a running ospbridge keeps its sockets and leases."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["runtime_directory"]


def runtime_directory() -> Path:
    """``$RUNTIME_DIRECTORY`` (systemd), else ``$XDG_RUNTIME_DIR/ospbridge``, else one of this user's under /tmp."""
    given = os.environ.get("RUNTIME_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    session = os.environ.get("XDG_RUNTIME_DIR")
    if session:
        return Path(session) / "ospbridge"
    return Path(tempfile.gettempdir()) / f"ospbridge-{os.getuid()}"
