"""What many agents of one simulator cost, as ratios measured in one run."""

from __future__ import annotations

import os

import pytest

from ospbridge.bench.agents import ONE, agent_runs, agents_row, measure_agents
from ospbridge.bench.exercise import Exercise
from ospbridge.bench.subjects import BLOCKING_FLOOR, SPINNING_FLOOR
from tests.bench.patience import best_until

pytestmark = pytest.mark.loopback

EACH = {"document": 1.4, "nerd": 2.0}
"""Of what a single agent's environment costs: where votes are not under way at once, each waits for its answer.
On a quiet machine it is 1.0 and 1.4; a busy one finds a quiet moment for a short step sooner than for a long one."""


@pytest.mark.timed
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the simulator needs a core beside the client's")
@pytest.mark.timeout(150)
@pytest.mark.parametrize("profile", sorted(EACH))
def test_of_64_agents_each_costs_hardly_more_than_a_single_one(profile: str) -> None:
    broken = best_until(
        agent_runs([64], Exercise(steps=20, profile=profile)),
        lambda best: best[agents_row(64)]["each_us"] <= EACH[profile] * best[ONE]["each_us"],
    )
    assert not broken, broken


@pytest.mark.parametrize("profile", ["document", "nerd"])
def test_floors_and_vector_environment_are_measured_for_each_number_of_agents(profile: str) -> None:
    report = measure_agents([1, 3], Exercise(2, 3, 20, profile), runs=1)
    assert [row.name for row in report.rows] == [
        "direct environment",
        "blocking floor, 1 agent",
        "spinning floor, 1 agent",
        "vector environment, 1 agent",
        "blocking floor, 3 agents",
        "spinning floor, 3 agents",
        "vector environment, 3 agents",
    ]
    three = report.row("vector environment, 3 agents")
    assert three.values["each_us"] == pytest.approx(three.values["p50_us"] / 3)
    assert three.values["environment_steps_per_second"] == pytest.approx(3 * three.values["steps_per_second"])
    floor = report.row("blocking floor, 3 agents").values["p50_us"]
    assert three.ratios[BLOCKING_FLOOR] == pytest.approx(three.values["p50_us"] / floor)
    assert set(three.ratios) == {BLOCKING_FLOOR, SPINNING_FLOOR, "one agent's", "vector of one's"}
    single = report.row("direct environment").values["p50_us"]
    assert three.ratios["one agent's"] == pytest.approx(three.values["each_us"] / single)
