"""Seeded faults on the wire: datagrams dropped, doubled, held back past the next one, or late.

Each direction of each handler, and the main port, is a line of its own with its own random sequence, made from the
seed and the line's name. A line draws the same number of random values for each datagram, whatever becomes of it, so
that the n-th datagram of a line meets the same fate in every run with the same options. No sockets, no clock.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from random import Random
from typing import Final, Generic, TypeVar

from ospbridge.errors import ConfigurationError

__all__ = ["FaultPlan", "FaultyLine"]

T = TypeVar("T")

HOLD: Final = 0.02
"""How long a datagram that waits for its successor waits at most, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultPlan:
    """How often what happens to a datagram. Raises ConfigurationError for what is no probability."""

    drop: float = 0.0
    """The probability that it is lost."""
    duplicate: float = 0.0
    """That it comes twice."""
    reorder: float = 0.0
    """That it comes behind the next one."""
    delay: float = 0.0
    """That it is late."""
    delay_max: float = 0.1
    """By so many seconds at most."""
    seed: int = 0
    """The same seed, the same faults."""

    def __post_init__(self) -> None:
        for name in ("drop", "duplicate", "reorder", "delay"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ConfigurationError(f"{name} must be a probability in [0, 1], got {getattr(self, name)}")
        if not 0.0 <= self.delay_max < math.inf:
            raise ConfigurationError(f"delay_max must be 0 seconds or more, got {self.delay_max}")

    @property
    def harmless(self) -> bool:
        """Whether nothing will ever happen."""
        return not (self.drop or self.duplicate or self.reorder or self.delay)


class FaultyLine(Generic[T]):
    """One direction of one connection."""

    def __init__(self, plan: FaultPlan, name: str) -> None:
        self._plan = plan
        self._random = Random(f"{plan.seed}/{name}")
        self._late: list[tuple[float, int, T]] = []
        self._held: T | None = None
        self._held_until = math.inf
        self._count = 0

    def transmit(self, item: T, now: float) -> list[T]:
        """Send ``item`` along the line; returns what arrives at once, in order."""
        plan = self._plan
        drop, duplicate, reorder, delay, lateness = (self._random.random() for _ in range(5))
        if drop < plan.drop:
            return []
        copies = 2 if duplicate < plan.duplicate else 1
        if delay < plan.delay:
            for _ in range(copies):
                self._count += 1
                heapq.heappush(self._late, (now + lateness * plan.delay_max, self._count, item))
            return []
        if reorder < plan.reorder and self._held is None:
            self._held, self._held_until = item, now + HOLD
            return [item] * (copies - 1)
        return [item] * copies + self._release_held()

    def arrivals(self, now: float) -> list[T]:
        """What was late and arrives by ``now``."""
        arrived = []
        while self._late and self._late[0][0] <= now:
            arrived.append(heapq.heappop(self._late)[2])
        if self._held_until <= now:
            arrived += self._release_held()
        return arrived

    def next_deadline(self) -> float:
        """When ``arrivals`` has something; infinite if nothing is on its way."""
        return min(self._late[0][0] if self._late else math.inf, self._held_until)

    def _release_held(self) -> list[T]:
        held, self._held, self._held_until = self._held, None, math.inf
        return [] if held is None else [held]
