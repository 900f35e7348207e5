"""Where ospbridge keeps what must outlive it: spools."""

from __future__ import annotations

import os
from pathlib import Path

from ospbridge.observe.base_directories import base_directory, home

__all__ = ["state_directory"]


def state_directory() -> Path:
    """``$STATE_DIRECTORY`` (systemd), else ``$XDG_STATE_HOME/ospbridge``, else ``~/.local/state/ospbridge``.

    Raises ConfigurationError where there is none of these.
    """
    given = os.environ.get("STATE_DIRECTORY")
    if given:
        return Path(given.split(":")[0])
    states = base_directory(os.environ.get("XDG_STATE_HOME"))
    return (states or home() / ".local" / "state") / "ospbridge"
