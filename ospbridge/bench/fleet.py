"""``ospbridge bench fleet``: how many steps a second many simulators make that one client steps together.

Each simulator sleeps in each step, as one that thinks would take its time on a core of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ospbridge.bench.exercise import FLEET
from ospbridge.bench.figures import first, runs_of, untold
from ospbridge.bench.report import Against, Report, combine
from ospbridge.bench.stage import Stage
from ospbridge.bench.subjects import FLOORS
from ospbridge.bench.vectors import (
    PANELS_OF_MANY,
    QUANTITIES_OF_MANY,
    VECTOR,
    against_floors,
    counted,
    subjects_of_many,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.bench.exercise import Exercise
    from ospbridge.bench.figures import Runs, Subject, Told

__all__ = ["COUNTS", "THINK", "fleet_row", "fleet_runs", "measure_fleet"]

COUNTS: Final = (1, 4, 16, 32, 64)
THINK: Final = 0.001
"""Seconds."""


def fleet_row(count: int, name: str = VECTOR) -> str:
    """The name of a row."""
    return counted(name, count, "simulator")


def fleet_runs(
    counts: Sequence[int] = COUNTS,
    exercise: Exercise = FLEET,
    *,
    think: float = THINK,
    told: Told = untold,
) -> Runs:
    """Runs without end, each with the floors and the vector environment for each number of simulators."""
    programs = ExitStack()
    subjects: dict[str, Subject] = {}
    for count in counts:
        stage = programs.enter_context(Stage.of(exercise, think=think, simulators=count))
        subjects |= subjects_of_many(stage, exercise.steps, fleet_row, fleet=True)
    return runs_of(subjects, told, programs)


def measure_fleet(
    counts: Sequence[int] = COUNTS,
    exercise: Exercise = FLEET,
    *,
    runs: int = 5,
    think: float = THINK,
    told: Told = untold,
) -> Report:
    """Medians over some runs; as ``fleet_runs``."""
    found = first(fleet_runs(counts, exercise, think=think, told=told), runs)
    fewest = min(counts)
    gain = Against(
        "one simulator's" if fewest == 1 else f"{fewest} simulators'",
        "environment_steps_per_second",
        {fleet_row(count, name): fleet_row(fewest, name) for count in counts for name in (*FLOORS, VECTOR)},
    )
    return Report(
        "fleet",
        f"Simulators that think {1000 * think:g} ms in each step, stepped together",
        {"simulators": ",".join(map(str, counts)), **exercise.parameters(runs), "think": think},
        QUANTITIES_OF_MANY,
        combine(found, [*against_floors(fleet_row, counts), gain]),
        panels=PANELS_OF_MANY,
    )
