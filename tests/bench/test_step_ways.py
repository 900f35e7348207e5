"""What the ways of taking a step may cost, with a simulator that answers at once and with one that thinks.

Ratios to the floors measured beside them, and parts of a core; never times.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from ospbridge.bench.exercise import Exercise
from ospbridge.bench.step import measure_steps, step_runs
from ospbridge.bench.subjects import BLOCKING_FLOOR, CONDUCTOR, DIRECT, HUB, NEVER_SPINNING, SPINNING_FLOOR
from tests.bench.patience import best_until, usual_until

if TYPE_CHECKING:
    from ospbridge.bench.report import Values

pytestmark = pytest.mark.loopback
needs_cores = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="the floors need a core beside the responder's"
)

AT_ONCE = {NEVER_SPINNING: 1.5, CONDUCTOR: 4.0, HUB: 12.0}
"""Of the spinning floor, but for who never spins: of the blocking floor, ..."""
WAKING = 2.0
"""... at least of so many times the spinning one, since there are machines that wake a sleeper almost at once."""
THINKING = {DIRECT: 1.15, HUB: 1.5}
"""Of the blocking floor, where the simulator sleeps 1 ms in each step."""
OF_A_CORE = 30.0
"""Percent that a client may take of one meanwhile."""


@pytest.mark.timed
@needs_cores
@pytest.mark.timeout(150)
def test_the_other_ways_cost_at_most_so_many_times_the_datagrams() -> None:
    def ratios(run: dict[str, Values]) -> dict[str, float]:
        spinning = run[SPINNING_FLOOR]["p50_us"]
        floors = {NEVER_SPINNING: max(run[BLOCKING_FLOOR]["p50_us"], WAKING * spinning)}
        return {name: run[name]["p50_us"] / floors.get(name, spinning) for name in AT_ONCE}

    broken = usual_until(step_runs(Exercise(steps=200), only=tuple(AT_ONCE)), ratios, AT_ONCE)
    assert not broken, broken


@pytest.mark.timed
@needs_cores
@pytest.mark.timeout(150)
def test_beside_a_simulator_that_thinks_the_bridge_costs_little_time_and_little_of_a_core() -> None:
    broken = best_until(
        step_runs(Exercise(steps=150), think=0.001, only=tuple(THINKING)),
        lambda best: all(
            best[name]["p50_us"] <= limit * best[BLOCKING_FLOOR]["p50_us"]
            and best[name]["processor_percent"] <= OF_A_CORE
            for name, limit in THINKING.items()
        ),
    )
    assert not broken, broken


@pytest.mark.timed
def test_a_simulator_that_thinks_is_waited_for_asleep() -> None:
    report = measure_steps(Exercise(steps=20), runs=1, think=0.005, only=[BLOCKING_FLOOR])
    assert report.parameters["think"] == 0.005
    blocking, spinning = report.rows
    assert blocking.values["p50_us"] >= 5000
    assert blocking.values["processor_us"] < 0.5 * spinning.values["processor_us"]


def test_conductor_and_environments_that_do_not_spin_are_among_the_ways() -> None:
    rows = measure_steps(Exercise(steps=20), runs=1, only=[CONDUCTOR, NEVER_SPINNING]).rows
    assert [row.name for row in rows[2:]] == [NEVER_SPINNING, CONDUCTOR]
    assert all(row.ratios[SPINNING_FLOOR] > 0.0 for row in rows)
