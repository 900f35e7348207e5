"""Figures of a measurement: percentiles of each run, medians over the runs, ratios within a run.

Machines are shared and their speed drifts, so a ratio or a difference is always taken between figures of the same
run, and what is reported is the median over the runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["Figures", "Run", "combine"]


@dataclass(frozen=True, slots=True)
class Run:
    """One subject's steps in one run; times in microseconds."""

    p50: float
    p99: float
    steps_per_second: float

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> Run:
        """From the durations of single steps, float64[n], in seconds."""
        p50, p99 = np.percentile(seconds, (50, 99)) * 1e6
        return cls(float(p50), float(p99), len(seconds) / float(seconds.sum()))


@dataclass(frozen=True, slots=True)
class Figures:
    """One subject over all runs.

    ``ratios``: p50 to the p50 of each floor, by the floor's name. ``over``: p50 less the p50 of what the subject adds
    to, in microseconds, by that one's name.
    """

    name: str
    p50: float
    p99: float
    steps_per_second: float
    ratios: dict[str, float]
    over: dict[str, float] = field(default_factory=dict)

    def as_object(self) -> dict[str, Any]:
        """For JSON; times in microseconds."""
        return {
            "name": self.name,
            "p50_us": round(self.p50, 2),
            "p99_us": round(self.p99, 2),
            "steps_per_second": round(self.steps_per_second, 1),
            "ratios": {floor: round(ratio, 3) for floor, ratio in self.ratios.items()},
            "over_us": {plain: round(difference, 2) for plain, difference in self.over.items()},
        }


def combine(runs: Sequence[dict[str, Run]], floors: Sequence[str], plain: Mapping[str, str]) -> list[Figures]:
    """Medians over ``runs``, each of which has the same subjects by name; ``plain``: what subjects add to."""
    return [
        Figures(
            name,
            _median([run[name].p50 for run in runs]),
            _median([run[name].p99 for run in runs]),
            _median([run[name].steps_per_second for run in runs]),
            {floor: _median([run[name].p50 / run[floor].p50 for run in runs]) for floor in floors},
            {
                other: _median([run[name].p50 - run[other].p50 for run in runs])
                for other in (plain.get(name),)
                if other in runs[0]
            },
        )
        for name in runs[0]
    ]


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))
