"""Where ospbridge keeps what must outlive it: spools."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["state_directory"]


def state_directory() -> Path:
    """``$STATE_DIRECTORY`` (systemd), else ``$XDG_STATE_HOME/ospbridge``, else ``~/.local/state/ospbridge``."""
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "ospbridge"
