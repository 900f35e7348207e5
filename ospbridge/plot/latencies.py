"""How long the steps of a trace took: over time, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import UsageError
from ospbridge.observe.trace_round_trips import round_trips
from ospbridge.osp.codes import Code
from ospbridge.plot.looks import MOST_POINTS, Looks, legend, plain_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from ospbridge.observe.trace import TraceRecord

__all__ = ["StepTimes", "draw_latencies", "step_times"]

LEAST: Final = 1e-3
"""Milliseconds; a trace resolves no shorter times."""
BINS: Final = 48
PERCENTILES: Final = ((50, "solid"), (95, "dashed"), (99, "dotted"))


class StepTimes:
    """``begun``: float64[n], seconds since the trace began; ``took``: float64[n], milliseconds; ``lost``: float64[m],
    when steps began that were never completed.
    """

    def __init__(self, begun: list[float], took: list[float], lost: list[float]) -> None:
        self.begun: NDArray[np.float64] = np.array(begun, dtype=np.float64)
        self.took: NDArray[np.float64] = np.maximum(np.array(took, dtype=np.float64), LEAST)
        self.lost: NDArray[np.float64] = np.array(lost, dtype=np.float64)


def step_times(records: Iterable[TraceRecord]) -> StepTimes:
    """The steps of a trace. Raises UsageError where none was completed."""
    begun, took, lost = [], [], []
    for trip in round_trips(records):
        if trip.code is not Code.NEXT_SIMULATION_STEP:
            continue
        if trip.seconds is None:
            lost.append(trip.time)
        else:
            begun.append(trip.time)
            took.append(trip.seconds * 1000)
    if not took:
        raise UsageError(
            "no step of the trace was completed: there are no times to draw",
            hint="`ospbridge trace show --summary` says what is in it",
        )
    return StepTimes(begun, took, lost)


def draw_latencies(times: StepTimes, title: str, looks: Looks) -> Figure:
    """Over time on the left, how often on the right; both share the axis of milliseconds, which is logarithmic."""
    figure = looks.figure(1200, 600)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
    colour = looks.colours[0]
    left.scatter(
        times.begun,
        times.took,
        s=9,
        lw=0,
        color=colour,
        alpha=0.5,
        rasterized=len(times.took) > MOST_POINTS,
        label="step",
    )
    left.set_yscale("log")
    low, high = float(times.took.min()) / 1.3, float(times.took.max()) * 1.3
    left.set_ylim(low, high)
    if len(times.lost):
        left.scatter(
            times.lost,
            np.full(len(times.lost), high / 1.1),
            marker="x",
            s=22,
            color=looks.bad,
            label="never completed",
            rasterized=len(times.lost) > MOST_POINTS,
        )
    left.set_xlabel("time since the trace began (s)")
    left.set_ylabel("from first vote to last completion (ms)")
    left.set_title("over time")
    right.hist(
        times.took,
        bins=np.geomspace(low, high, BINS + 1).tolist(),
        orientation="horizontal",
        color=colour,
        alpha=0.8,
    )
    right.set_xlabel("steps")
    right.set_title("how often")
    for percentile, style in PERCENTILES:
        value = float(np.percentile(times.took, percentile))
        name = "median" if percentile == 50 else f"{percentile} %"
        for axes, label in ((left, None), (right, f"{name}: {_milliseconds(value)}")):
            axes.axhline(value, color=looks.text, lw=1.0, ls=style, label=label)
    plain_numbers(left.yaxis)
    figure.suptitle(title, x=0.01, ha="left")
    if len(times.lost):
        legend(left)
    legend(right)
    return figure


def _milliseconds(value: float) -> str:
    return f"{value:.3g} ms"
