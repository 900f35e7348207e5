"""Subjects that take turns: in each run every subject once, so that a machine that slows down slows all of them."""

from __future__ import annotations

from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ospbridge.bench.report import Values

    Subject = Callable[[], Values]
    Told = Callable[[str], None]
    Runs = Generator[dict[str, Values]]

__all__ = ["best_of", "first", "runs_of", "untold"]


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
