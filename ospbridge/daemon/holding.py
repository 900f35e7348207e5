"""The world held still: an upstream's driver waits for its weights, and the time of all others stands still with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Holds"]


@dataclass(frozen=True, slots=True)
class _Hold:
    until: float
    reason: str


class Holds:
    """All times are trio's clock, in seconds. Several drivers may hold at once."""

    def __init__(self) -> None:
        self._holds: dict[object, _Hold] = {}
        self._spent = 0.0
        """Seconds held, until ``_counted``."""
        self._counted = 0.0

    def begin(self, who: object, now: float, seconds: float, reason: str) -> None:
        """``who`` holds the world for ``seconds`` at most."""
        self._count(now)
        self._holds[who] = _Hold(now + seconds, reason)

    def end(self, who: object, now: float) -> None:
        """``who`` does so no more. Safe to call again."""
        self._count(now)
        self._holds.pop(who, None)

    @property
    def held(self) -> bool:
        """Somebody has not let go of the world yet."""
        return bool(self._holds)

    def left(self, now: float) -> float:
        """Seconds that the world may still be held; 0 where nobody holds it."""
        return max((hold.until - now for hold in self._holds.values() if hold.until > now), default=0.0)

    def until(self, who: object) -> float:
        """Until when ``who`` may hold the world; 0 where it does not."""
        hold = self._holds.get(who)
        return hold.until if hold is not None else 0.0

    def next_end(self, now: float) -> float:
        """When the next of them may no longer; infinity where nobody holds it."""
        return min((hold.until for hold in self._holds.values() if hold.until > now), default=math.inf)

    @property
    def reason(self) -> str:
        """Why, by who holds it longest."""
        return max(self._holds.values(), key=lambda hold: hold.until).reason if self._holds else ""

    def spent(self, now: float) -> float:
        """Seconds held, in all and until now: what is added to a deadline between two calls."""
        if self._holds:
            self._count(now)
        return self._spent

    def _count(self, now: float) -> None:
        latest = max((hold.until for hold in self._holds.values()), default=self._counted)
        if self._holds:
            self._spent += max(0.0, min(now, latest) - self._counted)
        self._counted = now
