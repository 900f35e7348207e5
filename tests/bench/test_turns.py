"""Subjects take turns in each run."""

from __future__ import annotations

from contextlib import ExitStack

from ospbridge.bench.turns import best_of, first, runs_of


def test_they_alternate_and_what_they_needed_is_ended() -> None:
    told: list[str] = []
    ends: list[str] = []
    ended = ExitStack()
    ended.callback(ends.append, "ended")
    figures = iter([5.0, 7.0, 3.0, 8.0])
    subjects = {name: lambda: {"p50_us": next(figures)} for name in ("plain", "more")}
    runs = first(runs_of(subjects, told.append, ended), 2)
    assert runs == [
        {"plain": {"p50_us": 5.0}, "more": {"p50_us": 7.0}},
        {"plain": {"p50_us": 3.0}, "more": {"p50_us": 8.0}},
    ]
    assert told == ["plain", "more"] * 2
    assert ends == ["ended"]


def test_the_best_run_of_each_subject_is_the_one_with_the_least_median() -> None:
    runs = [
        {"plain": {"p50_us": 5.0, "p99_us": 6.0}, "more": {"p50_us": 7.0}},
        {"plain": {"p50_us": 3.0, "p99_us": 9.0}, "more": {"p50_us": 8.0}},
    ]
    assert best_of(runs) == {"plain": {"p50_us": 3.0, "p99_us": 9.0}, "more": {"p50_us": 7.0}}
