"""The arena, the synthetic world, and the worlds that scenarios name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.simulator.arena import BUMP, ArenaWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.synthetic import MARK_EVERY, SyntheticWorld, expected
from ospbridge.task.loading import load
from ospbridge.task.reading import read

# --- the arena --------------------------------------------------------------------------------------------------------


def drive(world: ArenaWorld, left: float, right: float, steps: int) -> list[str]:
    for agent in world.agents:
        agent.inputs[:] = left, right
    events = []
    for _ in range(steps):
        world.step()
        events += world.take_events()
    return events


def trajectory(world: ArenaWorld, seed: int) -> list[list[float]]:
    world.reset(seed)
    rng = np.random.default_rng(0)
    seen = []
    for _ in range(50):
        for agent in world.agents:
            agent.inputs[:] = rng.uniform(-1, 1, 2)
        world.step()
        seen.append([float(value) for agent in world.agents for value in (*agent.outputs, *agent.infos)])
    return seen


def test_the_same_seed_gives_the_same_trajectory_whatever_was_before() -> None:
    world = ArenaWorld(3)
    first = trajectory(world, 5)
    assert first != trajectory(world, 6)
    assert first == trajectory(world, 5) == trajectory(ArenaWorld(3), 5)


def test_values_stay_in_their_announced_ranges() -> None:
    world = ArenaWorld(4)
    for seed in range(1, 3):
        world.reset(seed)
        rng = np.random.default_rng(seed)
        for _ in range(100):
            for agent in world.agents:
                agent.inputs[:] = rng.uniform(-1, 1, 2)
            world.step()
            for agent in world.agents:
                values = (*agent.interface.outputs, *agent.interface.infos)
                low, high = np.array([(value.min, value.max) for value in values]).T
                seen = np.concatenate([agent.outputs, agent.infos])
                assert ((low - 1e-6 <= seen) & (seen <= high + 1e-6)).all()


def test_driving_straight_ends_at_something_with_one_bump() -> None:
    world = ArenaWorld(1)
    world.reset(2)
    (agent,) = world.agents
    events = drive(world, 1.0, 1.0, 300)
    assert events[:1] == [BUMP]
    assert agent.infos[2] == -1.0
    assert agent.outputs[:8].max() > 0.9, "a proximity sensor says so"


def test_settings_are_variables_and_never_terminate() -> None:
    world = ArenaWorld(1)
    variables = {variable.name: variable for variable in world.variables}
    assert variables["/Sim/Arena/Size"].get() == "4"
    assert variables["/Sim/Arena/TopSpeed"].set("0.1")
    assert not variables["/Sim/Arena/TopSpeed"].set("-1")
    assert not variables["/Sim/Arena/Size"].set("nan")
    world.reset(1)
    drive(world, 1.0, 1.0, 500)
    assert list(world.agents[0].infos[3:]) == [0.0, 0.0]


@pytest.mark.parametrize("name, beyond, utmost", [("Size", "0.3", "0.4"), ("WheelInertia", "1.1", "1")])
def test_a_setting_that_no_arena_can_have_is_refused(name: str, beyond: str, utmost: str) -> None:
    world = ArenaWorld(2)
    (setting,) = (variable for variable in world.variables if variable.name.endswith(f"/{name}"))
    assert not setting.set(beyond)
    assert setting.set(utmost)
    world.reset(1)
    drive(world, 1.0, -1.0, 300)
    drive(world, math.nan, 1.0, 10)
    for agent in world.agents:
        assert np.isfinite(agent.outputs).all()
        assert (np.abs(agent.outputs) <= 1.0).all()


# --- the synthetic world ----------------------------------------------------------------------------------------------


def test_outputs_and_infos_stay_in_their_announced_ranges_and_as_promised() -> None:
    world = SyntheticWorld(3, 5, 2)
    (agent,) = world.agents
    world.reset(999)
    seen = set()
    for step in range(1, 2 * 2048):
        agent.inputs[:] = [1.0, 1.0, 1.0] if step > 20 else [step / 200, -step / 30, step / 60]
        world.step()
        promised = expected(agent.inputs, step, 7, seed=999)
        assert np.array_equal(agent.outputs, promised[:5])
        assert np.array_equal(agent.infos, promised[5:])
        assert (np.abs(promised) <= 1.0).all()
        seen.add(promised[0].item())
    assert len(seen) >= 2048
    assert {(value.min, value.max) for value in (*agent.interface.outputs, *agent.interface.infos)} == {
        (-1.0, 1.0)
    }


def test_agents_are_named_and_numbered() -> None:
    assert [agent.name for agent in SyntheticWorld(1, 1).agents] == ["agent"]
    assert [agent.name for agent in SyntheticWorld(1, 1, agents=2).agents] == ["agent1", "agent2"]
    assert [agent.name for agent in SyntheticWorld(1, 1, names=["left", "right"]).agents] == ["left", "right"]


def test_marks_occur_regularly() -> None:
    world = SyntheticWorld(1, 1)
    world.reset(0)
    marked = []
    for step in range(1, 3 * MARK_EVERY + 1):
        world.step()
        marked += [step] * len(world.take_events())
    assert marked == [10, 20, 30]


@pytest.mark.parametrize("sizes", [{"inputs": -1}, {"infos": -1}, {"values": -1}, {"agents": 0}])
def test_impossible_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError):
        SyntheticWorld(**{"inputs": 1, "outputs": 1, **sizes})  # type: ignore[arg-type]


# --- worlds of scenarios ----------------------------------------------------------------------------------------------


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
