"""What a step may cost on each way, as ratios to the floors measured beside it, and parts of a core. Never times."""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.exercise import Exercise
from ospbridge.bench.report import Values
from ospbridge.bench.step import measure_steps, step_runs
from ospbridge.bench.subjects import (
    BLOCKING_FLOOR,
    CONDUCTOR,
    DIRECT,
    HUB,
    NEVER_SPINNING,
    SPINNING_FLOOR,
    WITH_SCENARIO,
)
from tests.bench.patience import usual_until

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.timeout(150),
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="the floors need a core beside the responder's"
    ),
]

AT_ONCE = {DIRECT: 1.6, "TrioSession": 2.2, NEVER_SPINNING: 1.5}
"""Of the blocking floor, where it is dear to wake a sleeper."""
WAKING = {DIRECT: 3.0, "TrioSession": 3.0, NEVER_SPINNING: 2.0}
"""How many times the spinning floor the blocking one is there (67 us and 22 us). Other machines wake a sleeper almost
at once; what a step costs beside its datagrams is work of the interpreter, and the same on both."""
OF_THE_SPINNING = {CONDUCTOR: 4.0, HUB: 12.0}
SCENARIO_LIMIT = 3.0 / 9.8
"""What a scenario may add, as a part of the spinning floor: 3 us where that is at 9.8 us, as in docs/measurements.md.
What the environment itself adds is no measure, since the less that is, the more a scenario would seem to add."""
THINKING = {DIRECT: 1.15, HUB: 1.5}
"""Of the blocking floor, where the simulator sleeps 1 ms in each step."""
OF_A_CORE = 30.0
"""Percent that a client may take of one meanwhile."""


def test_a_step_costs_at_most_what_was_promised() -> None:
    def ratios(run: dict[str, Values]) -> dict[str, float]:
        blocking, spinning = run[BLOCKING_FLOOR]["p50_us"], run[SPINNING_FLOOR]["p50_us"]
        floors = {name: max(blocking, waking * spinning) for name, waking in WAKING.items()}
        found = {
            name: run[name]["p50_us"] / floors.get(name, spinning) for name in (*AT_ONCE, *OF_THE_SPINNING)
        }
        added = run[WITH_SCENARIO]["p50_us"] - run[DIRECT]["p50_us"]
        return found | {WITH_SCENARIO: added / spinning}

    limits = AT_ONCE | OF_THE_SPINNING | {WITH_SCENARIO: SCENARIO_LIMIT}
    broken = usual_until(
        step_runs(Exercise(steps=200), only=tuple(limits)), ratios, limits, least=5, longest=60.0
    )
    assert not broken, broken


def test_beside_a_simulator_that_thinks_the_bridge_costs_little_time_and_little_of_a_core() -> None:
    def ratios(run: dict[str, Values]) -> dict[str, float]:
        floor = run[BLOCKING_FLOOR]["p50_us"]
        found = {name: run[name]["p50_us"] / floor for name in THINKING}
        return found | {f"{name}, %": run[name]["processor_percent"] for name in THINKING}

    limits = THINKING | {f"{name}, %": OF_A_CORE for name in THINKING}
    broken = usual_until(step_runs(Exercise(steps=150), think=0.001, only=tuple(THINKING)), ratios, limits)
    assert not broken, broken


def test_a_simulator_that_thinks_is_waited_for_asleep() -> None:
    report = measure_steps(Exercise(steps=20), runs=3, think=0.005, only=[BLOCKING_FLOOR])
    blocking, spinning = report.rows
    assert blocking.values["p50_us"] >= 5000
    assert blocking.values["processor_us"] < 0.5 * spinning.values["processor_us"]
