"""How long a question and its answer take, and so for how long a silence tells nothing.

As RFC 6298 has it: smoothed, with several times the deviation, and never from a question that was asked again, whose
answer may be that to any of them. The profile says how short a silence may be that is acted upon; this only ever adds
to it, so whoever waits so long does what was right before, and later.
"""

from __future__ import annotations

from typing import Final

__all__ = ["RoundTrips"]

SMOOTHING: Final = 1 / 8
DEVIATION: Final = 1 / 4
DEVIATIONS: Final = 4.0
AT_LEAST: Final = 2.0
"""Times a round trip: a line of even ones may still have an uneven one."""
LONGEST: Final = 1.0
"""Seconds. Waits of exchanges are no longer, and what else is waited for is at least so long."""


class RoundTrips:
    """Of one session. ``shortest``: the profile's patience, in seconds."""

    __slots__ = ("_deviation", "_shortest", "_smoothed")

    def __init__(self, shortest: float) -> None:
        self._shortest = shortest
        self._smoothed: float | None = None
        self._deviation = 0.0

    def greeted(self, seconds: float) -> float:
        """The patience, in seconds, where INIT was answered so long behind the first one, whichever was answered."""
        return self._within(AT_LEAST * seconds)

    def took(self, seconds: float) -> float:
        """The same, where so long lay between a question that was asked once and its answer."""
        if self._smoothed is None:
            self._smoothed, self._deviation = seconds, seconds / 2.0
        else:
            self._deviation += DEVIATION * (abs(self._smoothed - seconds) - self._deviation)
            self._smoothed += SMOOTHING * (seconds - self._smoothed)
        return self._within(max(AT_LEAST * self._smoothed, self._smoothed + DEVIATIONS * self._deviation))

    def _within(self, seconds: float) -> float:
        return max(self._shortest, min(seconds, LONGEST))
