"""Saying rarely what happens again and again."""

from __future__ import annotations

from time import monotonic
from typing import Final

__all__ = ["MOST_KEPT", "SAID_AGAIN_AFTER", "Sparing", "SparingEach", "SparingMore"]

SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until the same trouble is logged a second time."""
LONGEST_PAUSE: Final = 3600.0
"""Seconds at most between two times that a trouble which goes on is logged."""
MOST_KEPT: Final = 256
"""Different troubles that are remembered."""


class Sparing:
    """How often to log one kind of trouble."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self) -> bool:
        """Whether to say it now; it counts as said then."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + SAID_AGAIN_AFTER
        return True


class SparingMore:
    """How often to log a trouble that goes on: at once where it is another one, then after ever longer pauses."""

    def __init__(self) -> None:
        self._said: object = None
        self._next = 0.0
        self._pause = SAID_AGAIN_AFTER

    def due(self, what: object) -> bool:
        """Whether to say it now; it counts as said then."""
        now = monotonic()
        if what != self._said:
            self._said, self._pause = what, SAID_AGAIN_AFTER
        elif now < self._next:
            return False
        self._next = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return True


class SparingEach:
    """The same for many kinds of trouble, such as that of each host, which are told apart by what is said of them."""

    def __init__(self) -> None:
        self._next: dict[object, float] = {}

    def due(self, what: object) -> bool:
        """Whether to say it now; it counts as said then. What was forgotten since, for others, is said again."""
        now = monotonic()
        if now < self._next.get(what, 0.0):
            return False
        self._next.pop(what, None)
        if len(self._next) >= MOST_KEPT:
            del self._next[next(iter(self._next))]
        self._next[what] = now + SAID_AGAIN_AFTER
        return True
