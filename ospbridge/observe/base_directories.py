"""The directories of a user, as the XDG Base Directory Specification has them."""

from __future__ import annotations

import os
from pathlib import Path

from ospbridge.errors import ConfigurationError

__all__ = ["base_directory", "home"]


def base_directory(named: str | None) -> Path | None:
    """Which one an environment variable names; None where it names none.

    A relative one is ignored, as the specification says: it would be another directory for each program.
    """
    directory = Path(named or "")
    return directory if directory.is_absolute() else None


def home() -> Path:
    """Raises ConfigurationError where nothing tells, as for a container's user without a name."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigurationError(
            f"HOME is not set, and the system knows no home of user {os.getuid()}", hint="set HOME"
        ) from None
