"""An agent's moments as points of curves: few enough for a browser, however fast the simulator steps. No I/O, no clock.

What a page shows of a thousand steps a second is eighty points a second; all that lies between is left out, but for the
beginnings and ends of episodes.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ospbridge.hub.replies import Kind
from ospbridge.text import LIST, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.hub.descriptions import AgentDescription, Range
    from ospbridge.hub.replies import Moment

__all__ = ["MOST_CURVES", "Curves", "Point", "Traces"]

MOST_CURVES: Final = 48
"""Of the sensors, of the inputs and of the infos each; what is beyond is not shown."""
POINTS_AT_ONCE: Final = 8
"""Of what came between two looks."""
MOST_WAITING: Final = 96
"""Points that wait for a browser to take them."""


class Point(msgspec.Struct, frozen=True, array_like=True):
    """One moment. ``time`` in seconds of the source's clock; what cannot be drawn is None."""

    time: float
    kind: Kind
    episode: int
    step: int
    reward: float | None
    observation: list[float | None]
    inputs: list[float | None]
    infos: list[float | None]
    reason: str


class Curves(msgspec.Struct, frozen=True):
    """What the numbers of the points are: name, least, most (None where unbounded). ``more`` are not shown."""

    observation: list[tuple[str, float | None, float | None]]
    inputs: list[tuple[str, float | None, float | None]]
    infos: list[tuple[str, float | None, float | None]]
    more: tuple[int, int, int]

    @classmethod
    def of(cls, agent: AgentDescription) -> Curves:
        space = agent.observation_space()
        names, _ = agent.names()
        observation = list(zip(names, space.low.tolist(), space.high.tolist(), strict=False))
        return cls(
            _bounded(observation),
            _bounded(agent.inputs),
            _bounded(agent.infos),
            (_beyond(observation), _beyond(agent.inputs), _beyond(agent.infos)),
        )


class Traces:
    """Points on their way to one browser: the oldest are lost where it does not take them."""

    def __init__(self) -> None:
        self._waiting: deque[Point] = deque(maxlen=MOST_WAITING)
        self._last: float | None = None

    def add(self, moments: Sequence[Moment], now: float) -> None:
        """They came since the last ones, and are taken to be spread evenly over that time."""
        began = now - 0.1 if self._last is None else max(self._last, now - 1.0)
        self._last = now
        for at in _chosen(moments):
            self._waiting.append(_point(moments[at], began + (now - began) * (at + 1) / len(moments)))

    def take(self) -> list[Point]:
        """All that wait."""
        points = list(self._waiting)
        self._waiting.clear()
        return points


def _chosen(moments: Sequence[Moment]) -> list[int]:
    """Which of them to show: evenly spread, the last one always, and those that begin or end an episode."""
    count = len(moments)
    even = {(number + 1) * count // POINTS_AT_ONCE - 1 for number in range(min(count, POINTS_AT_ONCE))}
    if count <= POINTS_AT_ONCE:
        even = set(range(count))
    turning = [at for at, moment in enumerate(moments) if moment.kind is not Kind.STEP or _over(moment)]
    return sorted(even.union(turning[-POINTS_AT_ONCE:]))


def _over(moment: Moment) -> bool:
    return moment.terminated or moment.truncated


def _point(moment: Moment, time: float) -> Point:
    return Point(
        round(time, 3),
        moment.kind,
        moment.episode,
        moment.step,
        _number(moment.reward) if moment.kind is Kind.STEP else None,
        _numbers(moment.observation),
        _numbers(moment.inputs),
        _numbers(moment.infos),
        printable(moment.reason, LIST),
    )


def _numbers(data: bytes) -> list[float | None]:
    return [_number(value) for value in np.frombuffer(data[: 4 * MOST_CURVES], "<f4").tolist()]


def _number(value: float) -> float | None:
    return float(f"{value:.5g}") if np.isfinite(value) else None


def _bounded(values: Sequence[Range]) -> list[tuple[str, float | None, float | None]]:
    return [(printable(name), _number(low), _number(high)) for name, low, high in values[:MOST_CURVES]]


def _beyond(values: Sequence[Range]) -> int:
    return max(len(values) - MOST_CURVES, 0)
