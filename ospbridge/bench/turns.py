"""Subjects that take turns: in each run every subject once, so that a machine that slows down slows all of them."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from contextlib import AbstractContextManager

    from ospbridge.bench.report import Values

    Subject = Callable[[], Values]
    Told = Callable[[str], None]
    Runs = Generator[dict[str, Values]]

__all__ = ["first", "runs_of", "untold"]


def untold(_: str) -> None:
    """Whose turn it is, to nobody."""


def runs_of(
    subjects: Mapping[str, Subject], told: Told, programs: AbstractContextManager[object], *, turns: int = 1
) -> Runs:
    """Runs without end; close it when done, and ``programs`` are ended.

    In each run every subject has so many ``turns``, of which the one with the least median counts: where more processes
    take part than there are cores, the others tell how the kernel had placed them. ``told`` is called with a subject's
    name before each of its turns.
    """
    with programs:
        while True:
            found: dict[str, list[Values]] = {name: [] for name in subjects}
            for _ in range(turns):
                for name, subject in subjects.items():
                    told(name)
                    found[name].append(subject())
            yield {name: min(each, key=_median) for name, each in found.items()}


def _median(values: Values) -> float:
    return values.get("p50_us", 0.0)


def first(runs: Runs, count: int) -> list[dict[str, Values]]:
    """So many of them; then what they needed is ended."""
    with closing(runs):
        return list(islice(runs, count))
