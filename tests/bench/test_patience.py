"""How long tests that compare times go on, and by what they judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench.patience import best_until, usual_until

if TYPE_CHECKING:
    from ospbridge.bench.report import Values
    from ospbridge.bench.turns import Runs


def runs(*times: float) -> Runs:
    for one in times:
        yield {"floor": {"p50_us": 10.0}, "step": {"p50_us": one}}


def to_the_floor(run: dict[str, Values]) -> dict[str, float]:
    return {"step": run["step"]["p50_us"] / run["floor"]["p50_us"]}


def test_one_lucky_run_is_not_what_is_usual() -> None:
    given = runs(20.0, 5.0, 20.0, 20.0, 20.0)
    assert usual_until(given, to_the_floor, {"step": 1.5}) == "{'step': [2.0, 0.5, 2.0, 2.0, 2.0]}"


def test_one_unlucky_run_is_not_what_is_usual() -> None:
    assert usual_until(runs(12.0, 90.0, 12.0), to_the_floor, {"step": 1.5}) == ""


def test_what_becomes_usual_is_waited_for() -> None:
    given = runs(20.0, 20.0, 12.0, 12.0, 12.0, 99.0)
    assert usual_until(given, to_the_floor, {"step": 1.5}) == ""


def test_too_few_runs_show_nothing() -> None:
    assert usual_until(runs(12.0, 12.0), to_the_floor, {"step": 1.5}) != ""


def test_time_that_is_up_ends_both() -> None:
    given = (run for _ in range(1000) for run in runs(20.0))
    assert usual_until(given, to_the_floor, {"step": 1.5}, longest=0.0) == "{'step': [2.0]}"
    given = (run for _ in range(1000) for run in runs(20.0))
    assert best_until(given, lambda _: False, longest=0.0) != ""


def test_the_best_of_each_row_counts() -> None:
    def kept(best: dict[str, Values]) -> bool:
        return best["step"]["p50_us"] <= 12.0

    assert best_until(runs(20.0, 12.0, 20.0), kept) == ""
    assert best_until(runs(20.0, 13.0, 20.0), kept) != ""
