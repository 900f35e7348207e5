"""Steps of many agents at once, in rows for different numbers of them: bare sockets, and the vector environment."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.bench.figures import PANELS, QUANTITIES, Run, timed
from ospbridge.bench.floors import many_floor
from ospbridge.bench.report import Against, Panel, Quantity
from ospbridge.bench.subjects import BLOCKING_FLOOR, ENVIRONMENT, FLOORS, SPINNING_FLOOR
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ospbridge.bench.figures import Subject
    from ospbridge.bench.report import Values
    from ospbridge.bench.stage import Stage

    RowName = Callable[[int, str], str]
    """Of so many, and of what is measured with them."""

__all__ = [
    "PANELS_OF_MANY",
    "QUANTITIES_OF_MANY",
    "VECTOR",
    "WARM_UP",
    "against_floors",
    "counted",
    "each_of",
    "floors_of_many",
    "in_each",
    "subjects_of_many",
    "vector_steps",
]

VECTOR: Final = "vector environment"
WARM_UP: Final = 100
"""Steps before those that count."""
QUANTITIES_OF_MANY: Final = (
    *QUANTITIES,
    Quantity("each_us", "P50 us EACH"),
    Quantity("environment_steps_per_second", "ENV STEPS/s", digits=0),
)
"""``each_us``: the median of a step, divided among all agents. ``environment_steps_per_second``: of all together."""
PANELS_OF_MANY: Final = (*PANELS, Panel("steps a second, of all together", ("environment_steps_per_second",)))


# --- rows ------------------------------------------------------------------------------------------------------------


def counted(name: str, count: int, noun: str) -> str:
    """A row's name: "vector environment, 16 agents"."""
    return f"{name}, {pluralize(count, noun)}"


def in_each(row: RowName, counts: Sequence[int], names: Sequence[str], other: str) -> dict[str, str]:
    """By row the one that it is compared with: that of ``other`` with as many."""
    return {row(count, name): row(count, other) for count in counts for name in names}


def against_floors(
    row: RowName, counts: Sequence[int], names: Sequence[str] = (*FLOORS, VECTOR)
) -> list[Against]:
    """The median of each row, compared with those of the floors of as many."""
    return [Against(floor, "p50_us", in_each(row, counts, names, floor)) for floor in FLOORS]


# --- subjects --------------------------------------------------------------------------------------------------------


def subjects_of_many(stage: Stage, steps: int, row: RowName, *, fleet: bool) -> dict[str, Subject]:
    """The floors and the vector environment with all agents of the stage, by row.

    ``fleet``: of all its simulators; else of the one that there is.
    """
    count = stage.agents * stage.simulators

    def vector() -> Run:
        simulator = stage.responders if fleet else stage.responder
        with vector_steps(count, stage.inputs, simulator=simulator, profile=stage.profile.name) as step:
            return timed(step, steps, WARM_UP)

    measures = {**floors_of_many(stage, steps), VECTOR: vector}
    return {row(count, name): each_of(measure, count) for name, measure in measures.items()}


def each_of(measure: Callable[[], Run], count: int) -> Subject:
    """A subject whose steps so many take at once."""

    def figures() -> Values:
        run = measure()
        return run.values() | {
            "each_us": run.p50 / count,
            "environment_steps_per_second": run.steps_per_second * count,
        }

    return figures


def floors_of_many(stage: Stage, steps: int) -> Mapping[str, Callable[[], Run]]:
    """Both floors by name, with all agents of all the stage's simulators."""

    def floor(*, spin: bool) -> Run:
        with many_floor(
            stage.responders, stage.profile, stage.inputs, stage.outputs, agents=stage.agents, spin=spin
        ) as step:
            return timed(step, steps, WARM_UP)

    return {BLOCKING_FLOOR: partial(floor, spin=False), SPINNING_FLOOR: partial(floor, spin=True)}


@contextlib.contextmanager
def vector_steps(count: int, inputs: int, **options: Any) -> Iterator[Callable[[], object]]:
    """A step of ``gymnasium.make_vec`` with these options; one action for all."""
    import gymnasium

    import ospbridge  # noqa: F401  # registers the id

    envs = gymnasium.make_vec(ENVIRONMENT, num_envs=count, **options)
    try:
        envs.reset(seed=1)
        actions = np.full((count, inputs), 0.5, np.float32)
        yield lambda: envs.step(actions)
    finally:
        envs.close()
