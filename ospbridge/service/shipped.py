"""The files for systemd that come with the package: in its own folder when installed, beside it in a source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["shipped_text"]

_PACKAGE: Final = Path(__file__).parents[1]


def shipped_text(name: str) -> str:
    """What the file of that name says, for instance ``user/ospbridge.service``."""
    installed = _PACKAGE / "systemd"
    folder = installed if installed.is_dir() else _PACKAGE.parent / "systemd"
    return (folder / name).read_text("utf-8")
