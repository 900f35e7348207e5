"""What many agents, simulators and processes cost and gain, as ratios measured in one run. Never times."""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.agents import ONE, agent_runs, agents_row
from ospbridge.bench.exercise import Exercise
from ospbridge.bench.fleet import fleet_row, fleet_runs
from ospbridge.bench.hub import CONDUCTOR, ONE_CLIENT, PROCESSES, hub_row, hub_runs
from tests.bench.patience import usual_until

pytestmark = [
    pytest.mark.loopback,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        len(os.sched_getaffinity(0)) < 2, reason="the simulator needs a core beside the client's"
    ),
]

EACH = {"document": 1.4, "nerd": 2.0}
"""Of what a single agent's environment costs: where votes are not under way at once, each waits for its answer.
On a quiet machine it is 1.0 and 1.4; a busy one finds a quiet moment for a short step sooner than for a long one."""
GAIN = 12.0
"""How many times the steps a second that 32 simulators make together which sleep 1 ms in each."""
PART = {PROCESSES: 0.1, ONE_CLIENT: 0.3}
"""Of the steps a second that the conductor of 16 agents makes without its hub."""


@pytest.mark.parametrize("profile", sorted(EACH))
def test_of_64_agents_each_costs_hardly_more_than_a_single_one(profile: str) -> None:
    broken = usual_until(
        agent_runs([64], Exercise(steps=20, profile=profile)),
        lambda run: {"each": run[agents_row(64)]["each_us"] / run[ONE]["each_us"]},
        {"each": EACH[profile]},
    )
    assert not broken, broken


def test_32_simulators_that_sleep_are_many_times_as_fast_as_one() -> None:
    rate = "environment_steps_per_second"
    broken = usual_until(
        fleet_runs([1, 32], Exercise(steps=100)),
        lambda run: {"one of 32": run[fleet_row(1)][rate] / run[fleet_row(32)][rate]},
        {"one of 32": 1 / GAIN},
    )
    assert not broken, broken


def test_16_environments_keep_a_part_of_the_conductor_s_steps() -> None:
    rate = "steps_per_second"
    broken = usual_until(
        hub_runs([16], Exercise(steps=100)),
        lambda run: {name: run[hub_row(16, CONDUCTOR)][rate] / run[hub_row(16, name)][rate] for name in PART},
        {name: 1 / part for name, part in PART.items()},
    )
    assert not broken, broken
