"""Runs until a promise is kept, within a time: by the best figure of each row, or by what is usual within a run.

The best serve where a row has the same best on every quiet machine. What takes turns with other programs on few cores
has rare moments in which it is half as long as else; then the usual ratio of rows that were measured in turn serves.
"""

from __future__ import annotations

import time
from contextlib import closing
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ospbridge.bench.report import Values
    from ospbridge.bench.turns import Runs

__all__ = ["best_until", "usual_until"]

LONGEST: Final = 60.0
"""Seconds."""
RUNS: Final = 3
"""So many at least: a busy moment of what is compared with must not pass for something quick."""


def best_until(
    runs: Runs, kept: Callable[[dict[str, Values]], bool], *, least: int = RUNS, longest: float = LONGEST
) -> str:
    """Empty when the promise was kept; else what the rows had at best. Rates are best when large, times when small."""
    best: dict[str, Values] = {}
    give_up = time.monotonic() + longest
    with closing(runs):
        for number, run in enumerate(runs, 1):
            for name, values in run.items():
                one = best.setdefault(name, dict(values))
                for key, value in values.items():
                    better = max if key.endswith("_per_second") else min
                    one[key] = better(one[key], value)
            if number >= least and kept(best):
                return ""
            if time.monotonic() > give_up:
                break
    return str({name: {key: round(value, 1) for key, value in one.items()} for name, one in best.items()})


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
            if time.monotonic() > give_up:
                break
    return str({name: [round(value, 3) for value in values] for name, values in found.items()})
