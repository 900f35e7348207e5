"""The scenarios that come with the package: in its own folder when installed, beside it in a source tree."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["shipped", "shipped_file"]

_PACKAGE: Final = Path(__file__).parents[1]


def _folder() -> Path:
    installed = _PACKAGE / "scenarios"
    return installed if installed.is_dir() else _PACKAGE.parent / "scenarios"


def shipped() -> list[str]:
    """Their names, sorted."""
    return sorted(file.stem for file in _folder().glob("*.toml"))


def shipped_file(name: str) -> Path | None:
    """The file of a shipped scenario; None where there is none of that name."""
    file = _folder() / f"{name}.toml"
    return file if file.is_file() else None
