"""``ospbridge bench step``: what a step costs on each way, as a ratio to what its datagrams cost."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Final

from ospbridge.bench.figures import Figures, Run, combine
from ospbridge.bench.subjects import FLOORS, PLAIN, SUBJECTS, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

__all__ = ["measure_steps", "measured", "step_runs"]

WARM_UP: Final = 200
"""Steps before those that count, so that spinning has adapted and caches are warm."""


def measured(only: Sequence[str]) -> list[str]:
    """Subjects in their order: all, or the floors, those named in ``only``, and what these add to."""
    wanted = {*FLOORS, *only, *(PLAIN[name] for name in only if name in PLAIN)}
    return [name for name in SUBJECTS if not only or name in wanted]


def step_runs(
    *,
    inputs: int = 8,
    outputs: int = 16,
    steps: int = 2000,
    profile: str = "document",
    only: Sequence[str] = (),
    told: Callable[[str], None] = lambda _: None,
) -> Generator[dict[str, Run]]:
    """Runs without end, each with the subjects that ``measured`` names; close it when done.

    Subjects take turns in each run, so that a machine that slows down slows all of them. ``told`` is called with a
    subject's name before each of its turns.
    """
    names = measured(only)
    with Stage(inputs=inputs, outputs=outputs, profile=profile) as stage:
        while True:
            run = {}
            for name in names:
                told(name)
                run[name] = Run.of(SUBJECTS[name](stage, steps, WARM_UP))
            yield run


def measure_steps(
    *,
    inputs: int = 8,
    outputs: int = 16,
    steps: int = 2000,
    runs: int = 3,
    profile: str = "document",
    only: Sequence[str] = (),
    told: Callable[[str], None] = lambda _: None,
) -> list[Figures]:
    """Medians over some runs; as ``step_runs``."""
    endless = step_runs(inputs=inputs, outputs=outputs, steps=steps, profile=profile, only=only, told=told)
    with closing(endless):
        return combine(list(islice(endless, runs)), FLOORS, PLAIN)
