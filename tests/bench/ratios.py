"""Best times of several pieces of work, measured in turn: what tests compare that must not depend on the machine.

The best of many short runs counts, so that a busy neighbour does not; and there is a time in which a quiet moment
must come.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["LONGEST", "bests", "ratio"]

LONGEST: Final = 40.0
"""Seconds in which a quiet moment must come."""
RUNS: Final = 6
"""So many at least: a busy moment of the floor alone must not pass for something quick."""


def bests(
    works: Mapping[str, Callable[[], object]],
    kept: Callable[[dict[str, float]], bool],
    *,
    times: int = 1,
    longest: float = LONGEST,
) -> dict[str, float]:
    """Seconds of one call of each, at best, once ``kept`` is content with them or the time is up.

    Each run of a work has so many ``times`` that the clock does not count.
    """
    best = dict.fromkeys(works, float("inf"))
    give_up = time.monotonic() + longest
    turns = range(times)
    run = 0
    while True:
        for name, work in works.items():
            began = time.perf_counter()
            for _ in turns:
                work()
            best[name] = min(best[name], (time.perf_counter() - began) / times)
        run += 1
        if (run >= RUNS and kept(best)) or time.monotonic() > give_up:
            return best


def ratio(
    one: Callable[[], object], other: Callable[[], object], *, promised: float, times: int = 1
) -> float:
    """The best time of one to the best time of the other, both measured in turn until the promise is kept."""
    best = bests(
        {"one": one, "other": other}, lambda best: best["one"] <= promised * best["other"], times=times
    )
    return best["one"] / best["other"]
