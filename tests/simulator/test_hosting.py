"""Worlds that scenarios name."""

from __future__ import annotations

import pytest

from ospbridge.simulator.hosting import world_of
from ospbridge.task.loading import load
from ospbridge.task.reading import read


@pytest.mark.parametrize(
    "scenario, agents",
    [
        ("cartpole", ["cart"]),
        ("pendulum", ["pendulum"]),
        ("arena_avoid", ["robot1"]),
        ("arena_two", ["robot1", "robot2"]),
        ("aseries_stand", ["ASeries"]),
        ("aseries_walk", ["ASeries"]),
        ("volksbot", ["Volksbot"]),
    ],
)
def test_a_shipped_scenario_names_a_world_with_its_agents(scenario: str, agents: list[str]) -> None:
    assert [agent.name for agent in world_of(load(scenario)).agents] == agents


def test_copies_and_time_steps_are_as_the_table_says() -> None:
    table = '[world]\nkind = "gym"\nenv = "CartPole-v1"\ncopies = 2\ntime_step = 0.5\n'
    world = world_of(read(f'name = "x"\n{table}[[agent]]\n'))
    assert [agent.name for agent in world.agents] == ["cart1", "cart2"]
    assert world.time_step == 0.5
