"""The arena: geometry, sensors, bumps, determinism."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ospbridge.simulator.arena import BUMP, ArenaWorld


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
                for values, array in (
                    (agent.interface.outputs, agent.outputs),
                    (agent.interface.infos, agent.infos),
                ):
                    assert np.isfinite(array).all()
                    low, high = np.array([(value.min, value.max) for value in values]).T
                    assert (array >= low - 1e-6).all()
                    assert (array <= high + 1e-6).all()


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
