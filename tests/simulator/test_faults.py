"""Seeded faults: what a line does to datagrams, and that it does it again."""

from __future__ import annotations

import math

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.simulator.faults import HOLD, FaultPlan, FaultyLine


def fates(plan: FaultPlan, name: str = "in 1", count: int = 200) -> list[list[int]]:
    """What arrives with each of ``count`` datagrams, a millisecond apart, and what is left."""
    line: FaultyLine[int] = FaultyLine(plan, name)
    arrived = []
    for number in range(count):
        now = number / 1000
        arrived.append(line.arrivals(now) + line.transmit(number, now))
    return [*arrived, line.arrivals(math.inf)]


def test_a_harmless_plan_passes_all() -> None:
    plan = FaultPlan(seed=5)
    assert plan.harmless
    assert fates(plan) == [[number] for number in range(200)] + [[]]


@pytest.mark.parametrize("name", ["drop", "duplicate", "reorder", "delay"])
def test_the_same_seed_meets_the_same_faults(name: str) -> None:
    def plan(seed: int) -> FaultPlan:
        return FaultPlan(**{name: 0.3}, seed=seed)

    assert fates(plan(1)) == fates(plan(1))
    assert fates(plan(1)) != fates(plan(2))
    assert fates(plan(1)) != fates(plan(1), "out 1"), "each direction has its own sequence"


def test_dropping_loses_about_as_many_as_asked_and_nothing_else() -> None:
    arrived = [number for got in fates(FaultPlan(drop=0.3, seed=1), count=2000) for number in got]
    assert arrived == sorted(set(arrived))
    assert 1300 < len(arrived) < 1500


def test_duplicates_come_twice_in_a_row() -> None:
    arrived = fates(FaultPlan(duplicate=1.0), count=3)
    assert arrived == [[0, 0], [1, 1], [2, 2], []]


def test_a_reordered_datagram_comes_behind_the_next_one_or_late() -> None:
    line: FaultyLine[str] = FaultyLine(FaultPlan(reorder=1.0), "in 1")
    assert line.transmit("a", 0.0) == []
    assert line.transmit("b", 0.001) == ["b", "a"]
    line.transmit("a", 1.0)
    assert line.next_deadline() == 1.0 + HOLD
    assert line.arrivals(1.0 + HOLD) == ["a"]
    assert line.next_deadline() == math.inf


def test_delays_stay_below_their_limit_and_lose_nothing() -> None:
    plan = FaultPlan(delay=1.0, delay_max=0.05, seed=3)
    line: FaultyLine[int] = FaultyLine(plan, "in 1")
    for number in range(100):
        assert line.transmit(number, 0.0) == []
        assert line.next_deadline() <= 0.05
    assert sorted(line.arrivals(0.05)) == list(range(100))


@pytest.mark.parametrize(
    "values", [{"drop": 1.1}, {"delay": -0.1}, {"reorder": math.nan}, {"delay_max": -1.0}]
)
def test_impossible_plans_are_refused(values: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        FaultPlan(**values)  # type: ignore[arg-type]
