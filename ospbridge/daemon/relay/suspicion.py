"""Which entry of a spool an upstream does not survive, judged by what it lets through. No I/O, no clock.

A delivery that fails may be the upstream's trouble or that of what was sent. What fails again and again is sent one by
one; and an entry that fails alone again and again is to blame when what is behind it gets through, twice: an upstream
that lets nothing through, or comes to its senses in between, loses nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["TRIES", "Suspicion", "Turn"]

TRIES: Final = 3
"""Failures in a row until something else is tried."""


class Turn(Enum):
    """What a failure changes."""

    NONE = "none"
    ONE_BY_ONE = "one by one"
    LOOK_BEHIND = "look behind"
    """One entry is suspected: see whether what is behind it gets through."""
    ALL_FAILS = "all fails"
    """It does not: the suspicion is dropped."""


class Suspicion:
    """Entries are known by their numbers, which ascend."""

    def __init__(self) -> None:
        self._failures = 0
        self._one_by_one_until = 0
        self._suspect = 0
        self._accused = 0
        """The one that failed while what was behind it got through, once."""

    @property
    def after(self) -> int:
        """Behind which entry the next delivery begins; 0: with the first."""
        return self._suspect

    @property
    def alone(self) -> bool:
        """The next delivery is of one entry."""
        return bool(self._suspect or self._one_by_one_until)

    def one_by_one(self, last: int) -> None:
        """Send all up to ``last`` one by one."""
        self._one_by_one_until = last

    def failed(self, first: int, last: int) -> Turn:
        """A delivery of these did not arrive."""
        self._failures += 1
        if self._failures < TRIES:
            return Turn.NONE
        self._failures = 0
        if self._suspect:
            self._suspect = self._accused = 0
            self._one_by_one_until = 0
            return Turn.ALL_FAILS
        if first < last:
            self._one_by_one_until = last
            return Turn.ONE_BY_ONE
        self._suspect = first
        return Turn.LOOK_BEHIND

    def nothing_behind(self) -> None:
        """There is no other entry to compare the suspected one with: try that one again."""
        self._one_by_one_until = self._suspect
        self._suspect = 0
        self._failures = TRIES - 1

    def arrived(self, last: int) -> int:
        """A delivery that ended with ``last`` has arrived. The entry that is to blame for the failures before, or 0."""
        self._failures = 0
        guilty = 0
        if self._suspect and self._suspect == self._accused:
            guilty, self._accused = self._accused, 0
        elif self._suspect:
            self._accused = self._suspect
            self._one_by_one_until = max(self._one_by_one_until, self._suspect)
        else:
            if last == self._accused:
                self._accused = 0
            if last >= self._one_by_one_until:
                self._one_by_one_until = 0
        self._suspect = 0
        return guilty
