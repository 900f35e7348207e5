"""``ospbridge bench step``: what a step costs on each way, as a ratio to what its datagrams cost."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ospbridge.bench.exercise import STEP
from ospbridge.bench.figures import PANELS, QUANTITIES, first, runs_of, untold, values_of
from ospbridge.bench.report import Against, Report, combine
from ospbridge.bench.stage import Stage
from ospbridge.bench.subjects import FLOORS, PLAIN, RAW, SUBJECTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.bench.exercise import Exercise
    from ospbridge.bench.figures import Runs, Subject, Told

__all__ = ["WARM_UP", "measure_steps", "measured", "step_runs", "subjects_on"]

WARM_UP: Final = 200
"""Steps before those that count, so that spinning has adapted and caches are warm."""


def measured(only: Sequence[str]) -> list[str]:
    """Subjects in their order: all, or the floors, those named in ``only``, and what these add to."""
    beside = [table[name] for name in only for table in (PLAIN, RAW) if name in table]
    wanted = {*FLOORS, *only, *beside}
    return [name for name in SUBJECTS if not only or name in wanted]


def subjects_on(
    stage: Stage, names: Iterable[str], steps: int, *, warm_up: int = WARM_UP
) -> dict[str, Subject]:
    """Those of these names, each with so many steps on this stage."""
    return {name: values_of(partial(SUBJECTS[name], stage, steps, warm_up)) for name in names}


def step_runs(
    exercise: Exercise = STEP,
    *,
    think: float = 0.0,
    only: Sequence[str] = (),
    told: Told = untold,
) -> Runs:
    """Runs without end, each with the subjects that ``measured`` names; close it when done."""
    stage = Stage.of(exercise, think=think, apart=True)
    return runs_of(subjects_on(stage, measured(only), exercise.steps), told, stage)


def measure_steps(
    exercise: Exercise = STEP,
    *,
    runs: int = 20,
    think: float = 0.0,
    only: Sequence[str] = (),
    told: Told = untold,
) -> Report:
    """Medians over some runs; as ``step_runs``."""
    found = first(step_runs(exercise, think=think, only=only, told=told), runs)
    return Report(
        "step",
        "A step on each way from a program to a simulator",
        {**exercise.parameters(runs), "think": think},
        QUANTITIES,
        combine(
            found,
            [
                *(
                    Against(floor, "p50_us", {name: floor for name in found[0] if name not in RAW})
                    for floor in FLOORS
                ),
                Against(
                    "raw sockets", "p50_us", {name: raw for name, raw in RAW.items() if name in found[0]}
                ),
            ],
            over=PLAIN,
        ),
        panels=PANELS,
        over="us",
    )
