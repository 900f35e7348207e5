"""Files that are put in place once, replaced by newer ones, and never where somebody has changed them.

A file's first line has a digest of what follows it: whoever changes a line and lets that one stand is noticed.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Final

from ospbridge.errors import ConfigurationError
from ospbridge.replacing import replaced

__all__ = ["PlacedFile", "Standing"]

_MARK: Final = "# Written by `ospbridge service install`; sha256 of what follows: "


class Standing(Enum):
    """How what is at a place compares to what belongs there."""

    MISSING = "missing"
    SAME = "unchanged"
    OLDER = "older"
    """We wrote it, and would write something else today."""
    CHANGED = "changed by somebody else"


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """``text`` at ``path``. ``keep``: it is its owner's as soon as it is there, and never written or removed again."""

    path: Path
    text: str
    keep: bool = False
    mode: int = 0o644
    group: str | None = None
    """Who may read it, besides its owner; where there is no such group, nobody."""
    directories: int | None = None
    """The mode of directories that are made for it, whatever the umask; None leaves it to that."""

    @property
    def content(self) -> str:
        """What is written, with the first line."""
        return self.text if self.keep else f"{_MARK}{_digest(self.text)}\n{self.text}"

    def standing(self) -> Standing:
        """Raises ConfigurationError where it cannot be read."""
        if self.keep:
            # It may be for root and a group only, and what is in it does not matter.
            return Standing.SAME if os.path.lexists(self.path) else Standing.MISSING
        found = self._found()
        if found is None:
            return Standing.MISSING
        if found == self.content:
            return Standing.SAME
        first, _, rest = found.partition("\n")
        return Standing.OLDER if first == _MARK + _digest(rest) else Standing.CHANGED

    def _found(self) -> str | None:
        try:
            return self.path.read_text("utf-8", "surrogateescape")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be read: {error.strerror}", hint="look at what stands there"
            ) from None

    def write(self) -> None:
        """All of it or nothing. Raises ConfigurationError."""
        try:
            self._make_directories()
            with replaced(self.path, mode=self.mode) as file:
                if self.group is not None:
                    # A group that is not there, and a user who may not give files away.
                    with suppress(LookupError, PermissionError):
                        shutil.chown(file.fileno(), group=self.group)
                file.write(self.content.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be written: {error.strerror}", hint="look at its directory"
            ) from None

    def _make_directories(self) -> None:
        missing = [each for each in self.path.parents if not each.exists()]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.directories is not None:
            for directory in missing:
                directory.chmod(self.directories)

    def remove(self) -> None:
        """And its directory, where that is one of drop-ins and empty then. Raises ConfigurationError."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"{self.path} cannot be removed: {error.strerror}", hint="look at its directory"
            ) from None
        if self.path.parent.suffix == ".d":
            with suppress(OSError):
                self.path.parent.rmdir()


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
