"""Figures of single steps: percentiles, the rate, and what the client's processor did for them.

Subjects take turns: in each run every one once, so that a machine that slows down slows all of them.
"""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.bench.cores import apart
from ospbridge.bench.report import Panel, Quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from ospbridge.bench.report import Values

    Subject = Callable[[], Values]
    Told = Callable[[str], None]
    Runs = Generator[dict[str, Values]]

__all__ = [
    "BRIEF",
    "PANELS",
    "QUANTITIES",
    "Run",
    "Stopwatch",
    "best_of",
    "first",
    "runs_of",
    "timed",
    "untold",
    "values_of",
]

QUANTITIES: Final = (
    Quantity("p50_us", "P50 us"),
    Quantity("p90_us", "P90 us"),
    Quantity("p99_us", "P99 us"),
    Quantity("steps_per_second", "STEPS/s", digits=0),
    Quantity("processor_us", "CPU us"),
    Quantity("processor_percent", "CPU %", digits=0),
)
"""Of a ``Run``. ``processor_us``: processor time of the client for a step, in user mode and in the kernel;
``processor_percent``: that as a part of a core."""
BRIEF: Final = tuple(
    quantity for quantity in QUANTITIES if quantity.key in ("p50_us", "p99_us", "steps_per_second")
)
"""Of a ``Run`` beside which something else is told."""
PANELS: Final = (
    Panel("time of a step (us): median, 90 %, 99 %", ("p50_us", "p90_us", "p99_us")),
    Panel("processor time of a step (us)", ("processor_us",)),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One subject's steps in one run; times in microseconds. ``processor``: of the client, for a step."""

    p50: float
    p90: float
    p99: float
    steps_per_second: float
    processor: float = 0.0

    @classmethod
    def of(cls, seconds: NDArray[np.float64], processor: float = 0.0) -> Run:
        """From the durations of single steps, float64[n], and the processor time of all, both in seconds."""
        p50, p90, p99 = np.percentile(seconds, (50, 90, 99)) * 1e6
        count = len(seconds)
        return cls(
            float(p50),
            float(p90),
            float(p99),
            count / float(seconds.sum()),
            processor * 1e6 / count,
        )

    def values(self) -> Values:
        """By the keys of ``QUANTITIES``."""
        return {
            "p50_us": self.p50,
            "p90_us": self.p90,
            "p99_us": self.p99,
            "steps_per_second": self.steps_per_second,
            "processor_us": self.processor,
            "processor_percent": self.processor * self.steps_per_second * 1e-4,
        }


def values_of(measure: Callable[[], Run]) -> Callable[[], Values]:
    """What is measured, as a report has it."""
    return lambda: measure().values()


def timed(
    step: Callable[[], object], steps: int, warm_up: int, *, alone: bool = True, work: float = 0.0
) -> Run:
    """Take many steps, of which the first ``warm_up`` do not count.

    ``alone``: no other process takes part but the responder, and a daemon. ``work``: seconds of other work before each
    step, as a learner has it, which do not count.
    """
    with apart() if alone else nullcontext():
        for _ in range(warm_up):
            step()
        if work:
            return _between_work(step, steps, work)
        watch = Stopwatch()
        stamp = watch.stamps.append
        for _ in range(steps):
            step()
            stamp(perf_counter_ns())
        return watch.run()


def _between_work(step: Callable[[], object], steps: int, work: float) -> Run:
    matrix = np.ones((64, 64), np.float32)
    nanoseconds, processor = [], 0
    for _ in range(steps):
        until = perf_counter_ns() + work * 1e9
        while perf_counter_ns() < until:
            np.matmul(matrix, matrix)
        processor -= process_time_ns()
        began = perf_counter_ns()
        step()
        nanoseconds.append(perf_counter_ns() - began)
        processor += process_time_ns()
    return Run.of(np.array(nanoseconds) * 1e-9, processor * 1e-9)


class Stopwatch:
    """Begins when it is made; behind each step ``stamps`` gets what ``perf_counter_ns`` says, in the end ``run``."""

    __slots__ = ("_processor", "stamps")

    def __init__(self) -> None:
        self._processor = process_time_ns()
        self.stamps = [perf_counter_ns()]

    def run(self) -> Run:
        """The steps until now."""
        processor = process_time_ns() - self._processor
        seconds = np.diff(np.array(self.stamps, np.float64) - self.stamps[0]) * 1e-9
        return Run.of(seconds, processor * 1e-9)


def untold(_: str) -> None:
    """Whose turn it is, to nobody."""


def runs_of(subjects: Mapping[str, Subject], told: Told, programs: AbstractContextManager[object]) -> Runs:
    """Runs without end; close it when done, and ``programs`` are ended.

    ``told`` is called with a subject's name before each of its turns.
    """
    with programs:
        while True:
            run = {}
            for name, subject in subjects.items():
                told(name)
                run[name] = subject()
            yield run


def best_of(runs: Sequence[Mapping[str, Values]]) -> dict[str, Values]:
    """Of each subject the run with the least median."""
    return {name: min((run[name] for run in runs), key=lambda values: values["p50_us"]) for name in runs[0]}


def first(runs: Runs, count: int) -> list[dict[str, Values]]:
    """So many of them; then what they needed is ended."""
    with closing(runs):
        return list(islice(runs, count))
