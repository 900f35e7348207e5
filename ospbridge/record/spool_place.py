"""Whether a spool's path still leads to the file that was opened there.

A file that is removed or replaced takes what is written all the same, and is gone with the process.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

__all__ = ["Place"]


class Place:
    """Of the database ``path``, which has just been opened, and of its log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = Path(f"{path}-wal")
        self._was = _what(self._path), _what(self._log)

    @property
    def kept(self) -> bool:
        """The path leads to it."""
        return _what(self._path) == self._was[0]

    def leave(self) -> None:
        """Take the log away that was left here: SQLite would read it into whatever database comes to the path."""
        if self._was[1] is not None and _what(self._log) == self._was[1]:
            self._log.unlink()


def _what(path: Path) -> tuple[int, int] | None:
    with suppress(FileNotFoundError, NotADirectoryError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None
