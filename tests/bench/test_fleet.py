"""What a fleet gains over one simulator, as a ratio measured in one run."""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.exercise import Exercise
from ospbridge.bench.fleet import fleet_row, fleet_runs, measure_fleet
from tests.bench.patience import best_until

pytestmark = pytest.mark.loopback

GAIN = 12.0
"""How many times the steps a second that 32 simulators make together which sleep 1 ms in each."""
RATE = "environment_steps_per_second"


@pytest.mark.timed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the simulators need a core beside the client's")
@pytest.mark.timeout(150)
def test_32_simulators_that_sleep_are_many_times_as_fast_as_one() -> None:
    broken = best_until(
        fleet_runs([1, 32], Exercise(steps=100)),
        lambda best: best[fleet_row(32)][RATE] >= GAIN * best[fleet_row(1)][RATE],
    )
    assert not broken, broken


def test_every_number_of_simulators_is_compared_with_the_fewest() -> None:
    report = measure_fleet([2, 4], Exercise(2, 3, 10), runs=1, think=0.002)
    assert [row.name for row in report.rows] == [
        "blocking floor, 2 simulators",
        "spinning floor, 2 simulators",
        "vector environment, 2 simulators",
        "blocking floor, 4 simulators",
        "spinning floor, 4 simulators",
        "vector environment, 4 simulators",
    ]
    two, four = (report.row(fleet_row(count)) for count in (2, 4))
    assert two.ratios["2 simulators'"] == 1.0
    assert four.ratios["2 simulators'"] == pytest.approx(four.values[RATE] / two.values[RATE])
    # No step is shorter than the simulators think.
    assert all(row.values["p50_us"] >= 2000 for row in report.rows)
