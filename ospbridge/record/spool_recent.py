"""The latest entries of a spool's file, in memory beside the disk: what arrives soon needs not be read again.

None that the file has not, so that they are all there is where they are as many. Where they would be too much they are
forgotten, and come from the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Entry", "Made", "Recent"]

MOST: Final = 2048
"""Entries, ..."""
LARGEST: Final = 8 * 2**20
"""... and bytes of their bodies; with what these were made of it may be three times that."""


class Made(NamedTuple):
    """An entry to be."""

    key: str
    steps: int
    body: bytes
    content: object = None
    """What the body was made of."""


class Entry(NamedTuple):
    """One episode, or one fragment of it."""

    seq: int
    """Ascends in the order of ``put``, over restarts too."""
    key: str
    steps: int
    body: bytes
    content: object = None
    """What the body was made of, as long as that is in memory too."""
    damage: str = ""
    """Why the file does not tell the body, or not all of the rest; empty where it does."""


class Recent:
    """Of one file."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        """By their numbers, ascending."""
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def came(self, some: Sequence[Made], last: int) -> None:
        """They are in the file, under numbers that follow each other and end with ``last``."""
        self._bytes += sum(len(made.body) for made in some)
        for seq, made in enumerate(some, last - len(some) + 1):
            self._entries[seq] = Entry(seq, *made)
        if len(self._entries) > MOST or self._bytes > LARGEST:
            self.forget()

    def left(self, seq: int) -> None:
        """It is in the file no more."""
        entry = self._entries.pop(seq, None)
        if entry is not None:
            self._bytes -= len(entry.body)

    def forget(self) -> None:
        """They are too much, or some may be in the file no more."""
        self._entries.clear()
        self._bytes = 0

    def behind(self, after: int) -> Iterator[Entry]:
        """Those with numbers above that one."""
        return (entry for entry in self._entries.values() if entry.seq > after)
