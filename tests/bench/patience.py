"""Runs until a promise is kept, within a time, by what is usual: the median of ratios, each taken within one run.

A machine may be slow meanwhile, and so is what stands beside it in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Final

from ospbridge.bench.report import Values

if TYPE_CHECKING:
    from ospbridge.bench.figures import Runs

__all__ = ["ratio", "usual_until"]

LONGEST: Final = 20.0
"""Seconds."""
RUNS: Final = 3


def usual_until(
    runs: Runs,
    ratios: Callable[[dict[str, Values]], Mapping[str, float]],
    limits: Mapping[str, float],
    *,
    least: int = RUNS,
    longest: float = LONGEST,
) -> str:
    """Empty when the median of each ratio kept its limit; else the ratios of all runs."""
    found: dict[str, list[float]] = {name: [] for name in limits}
    give_up = time.monotonic() + longest
    with closing(runs):
        for number, run in enumerate(runs, 1):
            for name, value in ratios(run).items():
                found[name].append(value)
            if number >= least and all(median(found[name]) <= limit for name, limit in limits.items()):
                return ""
            if number >= least and time.monotonic() > give_up:
                break
    return str({name: [round(value, 3) for value in values] for name, values in found.items()})


def ratio(
    one: Callable[[], object],
    other: Callable[[], object],
    *,
    promised: float,
    times: int = 1,
    longest: float = LONGEST,
) -> float:
    """How many times as long one takes: the median of runs, in each of which both are called so many times."""
    found: list[float] = []
    give_up = time.monotonic() + longest
    while True:
        taken = []
        for work in (one, other):
            began = time.perf_counter()
            for _ in range(times):
                work()
            taken.append(time.perf_counter() - began)
        found.append(taken[0] / taken[1])
        if len(found) >= 20 * RUNS and (median(found) <= promised or time.monotonic() > give_up):
            return median(found)
