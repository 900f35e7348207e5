"""``ospbridge bench agents``: what a step of many agents of one simulator costs each of them.

All agents are one client's, and step together. Where the kind of server lets them, all their votes are under way at
once; else each vote waits for the acknowledgement of the one before, and so does each completion.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ospbridge.bench.exercise import AGENTS
from ospbridge.bench.figures import PANELS, first, runs_of, untold
from ospbridge.bench.report import Against, Panel, Report, combine
from ospbridge.bench.stage import Stage
from ospbridge.bench.subjects import DIRECT, SUBJECTS
from ospbridge.bench.vectors import (
    QUANTITIES_OF_MANY,
    VECTOR,
    WARM_UP,
    against_floors,
    counted,
    each_of,
    subjects_of_many,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.bench.exercise import Exercise
    from ospbridge.bench.figures import Runs, Subject, Told

__all__ = ["COUNTS", "ONE", "agent_runs", "agents_row", "measure_agents"]

COUNTS: Final = (1, 4, 16, 64)
ONE: Final = DIRECT
"""The environment of a single agent, for comparison."""


def agents_row(count: int, name: str = VECTOR) -> str:
    """The name of a row."""
    return counted(name, count, "agent")


def agent_runs(counts: Sequence[int] = COUNTS, exercise: Exercise = AGENTS, *, told: Told = untold) -> Runs:
    """Runs without end: a single agent's environment, and for each count the floors and the vector environment."""
    programs = ExitStack()
    single = programs.enter_context(Stage.of(exercise, apart=True))
    subjects: dict[str, Subject] = {ONE: each_of(lambda: SUBJECTS[ONE](single, exercise.steps, WARM_UP), 1)}
    for count in counts:
        stage = programs.enter_context(Stage.of(exercise, agents=count, apart=True))
        subjects |= subjects_of_many(stage, exercise.steps, agents_row, fleet=False)
    return runs_of(subjects, told, programs)


def measure_agents(
    counts: Sequence[int] = COUNTS,
    exercise: Exercise = AGENTS,
    *,
    runs: int = 5,
    told: Told = untold,
) -> Report:
    """Medians over some runs; as ``agent_runs``."""
    found = first(agent_runs(counts, exercise, told=told), runs)
    rows = [agents_row(count) for count in counts]
    one = Against("one agent's", "each_us", dict.fromkeys(rows, ONE))
    vector = Against("vector of one's", "each_us", dict.fromkeys(rows, agents_row(1)))
    return Report(
        "agents",
        "A step of many agents of one simulator",
        {"agents": ",".join(map(str, counts)), **exercise.parameters(runs)},
        QUANTITIES_OF_MANY,
        combine(found, [*against_floors(agents_row, counts), one, vector]),
        panels=(*PANELS, Panel("median, divided among the agents (us)", ("each_us",))),
    )
