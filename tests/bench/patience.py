"""Runs until a promise is kept: the best figure of each row counts, and there is a time in which that must come."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.bench.report import Values
    from ospbridge.bench.turns import Runs

__all__ = ["best_until"]

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
