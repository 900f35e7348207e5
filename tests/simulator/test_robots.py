"""The stand-ins for the A-Series and the Volksbot: the interfaces of the real ones, and how they move."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ospbridge.osp.profile import NERD
from ospbridge.osp.world import Variable
from ospbridge.session.blocking import BlockingSession
from ospbridge.simulator.robots import ASeriesWorld, VolksbotWorld, robot_world
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.reading import ROBOTS

SIZES = {"ASeries": (42, 37, 955), "Volksbot": (2, 2, 317)}
"""Inputs, outputs and variables, as counted on the real simulator."""
QUIET = {
    "/AccelSensor/Deviation": "0",
    "/AngularMotor/MotorNoise": "0",
    "/AngularMotor/SensorNoiseDeviation": "0",
    "/AngularMotor/IncludeNoise": "F",
}
FALLEN = 0.3
"""Height of the head below which the A-Series does not stand any more."""


def recorded(robot: str) -> dict[str, Any]:
    file = resources.files("ospbridge.simulator") / f"{robot}.json"
    facts: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return facts


def variables(world: ASeriesWorld | VolksbotWorld) -> dict[str, Variable]:
    return {variable.name: variable for variable in world.variables}


def numbers(variable: Variable) -> tuple[float, float, float]:
    """Of a vector."""
    x, y, z = map(float, variable.get().strip("()").split(","))
    return x, y, z


def quiet() -> ASeriesWorld:
    """Without noise."""
    world = ASeriesWorld()
    for name, text in QUIET.items():
        assert variables(world)[name].set(text)
    return world


def standing(torque: float = 1.0) -> NDArray[np.float32]:
    inputs = np.zeros(42, np.float32)
    inputs[1::2] = torque
    return inputs


def heads(
    world: ASeriesWorld, inputs: Callable[[int], NDArray[np.float32]], steps: int
) -> list[tuple[float, float, float]]:
    """Where the head is after each of so many steps, as clients are told."""
    position = variables(world)["/Sim/ASeries/Middle/Head/Position"]
    world.reset(0)
    seen = []
    for step in range(steps):
        world.agents[0].inputs[:] = inputs(step)
        world.step()
        seen.append(numbers(position))
    return seen


def fell_in(seen: list[tuple[float, float, float]]) -> int:
    """The first step in which the head was below 0.3 m; the number of steps where it never was."""
    return next((step for step, (_, height, _) in enumerate(seen, 1) if height < FALLEN), len(seen))


# --- interfaces -------------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.parametrize("robot", ROBOTS)
def test_a_client_is_told_of_the_interface_and_the_variables_of_the_real_robot(robot: str) -> None:
    facts = recorded(robot)
    with (
        UdpSimulator(robot_world(robot), port=0, profile=NERD) as simulator,
        BlockingSession.connect(simulator.address) as session,
    ):
        (entry,) = session.agents()
        agent = session.describe(entry.name)
        values = {value.name: value.type for value in session.values()}
        assert agent.name == robot
        for kind, told in (("inputs", agent.inputs), ("outputs", agent.outputs), ("infos", agent.infos)):
            assert [[value.name, value.min, value.max] for value in told] == facts[kind]
        assert (len(agent.inputs), len(agent.outputs), len(values)) == SIZES[robot]
        assert values == {name: kind for name, kind, _ in facts["variables"]}


@pytest.mark.parametrize("robot", ROBOTS)
def test_variables_begin_with_the_recorded_content_and_take_what_their_type_allows(robot: str) -> None:
    world = robot_world(robot)
    there = variables(world)
    for name, _, text in recorded(robot)["variables"]:
        assert there[name].get() == text
    for name, good, bad in (
        ("/AngularMotor/MotorNoise", "0.5", "much"),
        ("/AngularMotor/PID/HistorySize", "3", "3.5"),
        ("/AngularMotor/IncludeNoise", "F", "0"),
        (f"/Sim/{robot}/Position", "(1,2,3)", "(1,2)"),
        (f"/Sim/{robot}/Orientation", "(0,90,0)", "(0,inf,0)"),
        (f"/Sim/{robot}/Name", "other", None),
    ):
        assert there[name].set(good)
        assert there[name].get() == good
        assert bad is None or not there[name].set(bad)
        assert there[name].get() == good
    part = "Middle/Head" if robot == "ASeries" else "Body"
    assert not there[f"/Sim/{robot}/{part}/Position"].set("(0,1,0)"), "nobody can set where it is"


# --- the A-Series -----------------------------------------------------------------------------------------------------


def test_with_full_torque_the_humanoid_stands_as_long_as_one_looks() -> None:
    seen = heads(quiet(), lambda _: standing(), 3000)
    assert seen[0] == pytest.approx((0.0, 0.403719, 0.0513), abs=1e-6), "where it starts"
    assert seen[-1] == pytest.approx((0.0, 0.4019, 0.0513), abs=1e-4)
    assert min(height for _, height, _ in seen) > 0.4


def test_without_torque_it_is_down_within_150_steps() -> None:
    seen = heads(quiet(), lambda _: standing(0.0), 150)
    assert 40 < fell_in(seen) < 150
    _, height, z = seen[-1]
    assert height == pytest.approx(0.12, abs=0.02)
    assert z == pytest.approx(-0.44, abs=0.05), "on its back, as the real one"


def test_random_inputs_bring_it_down_in_50_to_150_steps() -> None:
    world = quiet()
    agent = world.agents[0]
    ends = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        seen = heads(world, lambda _, random=random: random.uniform(agent.low, agent.high), 200)  # type: ignore[misc]
        assert 50 <= fell_in(seen) <= 150
        assert seen[-1][1] == pytest.approx(0.13, abs=0.02)
        ends.append(seen[-1][2])
    assert np.median(ends) == pytest.approx(-0.44, abs=0.05), "on its back; a few fall to a side"


@pytest.mark.parametrize(
    "mass, torque, holds", [("0.1", 0.4, 0), ("0.1", 0.5, 1), ("0.3", 0.5, 0), ("0.3", 0.6, 1)]
)
def test_less_torque_holds_it_the_less_it_carries(mass: str, torque: float, holds: int) -> None:
    world = quiet()
    assert variables(world)["/Sim/ASeries/Middle/PDA/Mass"].set(mass)
    assert (fell_in(heads(world, lambda _: standing(torque), 600)) == 600) == holds


def test_a_fallen_robot_stays_down_until_a_reset() -> None:
    world = quiet()
    heads(world, lambda _: standing(0.0), 150)
    for _ in range(100):
        world.agents[0].inputs[:] = standing()
        world.step()
    assert world.body.head[1] < 0.15
    assert heads(world, lambda _: standing(), 50)[-1][1] > 0.4


def outputs(world: ASeriesWorld, seed: int) -> list[list[float]]:
    random = np.random.default_rng(7)
    agent = world.agents[0]
    world.reset(seed)
    seen = []
    for _ in range(100):
        agent.inputs[:] = random.uniform(agent.low, agent.high)
        world.step()
        seen.append(agent.outputs.tolist())
    return seen


def test_no_seed_reaches_the_noise_and_without_it_episodes_repeat_bit_for_bit() -> None:
    assert outputs(ASeriesWorld(), 5) != outputs(ASeriesWorld(), 5)
    world = quiet()
    assert outputs(world, 5) == outputs(world, 5) == outputs(quiet(), 6)


@pytest.mark.parametrize("name", sorted(QUIET))
def test_each_variable_of_the_noise_does_something(name: str) -> None:
    world = quiet()
    there = variables(world)
    noisy = {
        "/AngularMotor/IncludeNoise": {name: "T", "/AngularMotor/SensorNoiseDeviation": "0.2"},
        "/AccelSensor/Deviation": {name: "0.1"},
    }.get(name, {name: "0.2", "/AngularMotor/IncludeNoise": "T"})
    for variable, text in noisy.items():
        assert there[variable].set(text)
    assert outputs(world, 5) != outputs(world, 5)


def test_sensors_are_raw_and_beyond_what_is_announced() -> None:
    world = quiet()
    heads(world, lambda _: standing(), 100)
    up = {22 + 2: -9.81, 22 + 5: -9.81, 22 + 10: 9.81, 22 + 13: -9.81}
    expected = [up.get(at, 0.0) for at in range(37)]
    assert world.agents[0].outputs.tolist() == pytest.approx(expected, abs=0.01), (
        "as recorded of the real one"
    )
    seen = np.array(outputs(world, 0))
    assert np.isfinite(seen).all()
    assert np.abs(seen[:, :21]).max() > 10.0, "degrees"
    assert np.abs(seen[:, 21:]).max() == pytest.approx(9.81, abs=0.5)


@pytest.mark.parametrize("robot", ROBOTS)
@pytest.mark.parametrize("text", ["1e308", "-1e308", "inf", "nan", "0"])
def test_whatever_its_variables_are_set_to_a_world_goes_on(robot: str, text: str) -> None:
    world = robot_world(robot)
    agent = world.agents[0]
    random = np.random.default_rng(1)
    for variable in world.variables:
        if variable.type == "Double":
            assert variable.set(text)
    world.reset(0)
    for step in range(200):
        agent.inputs[:] = random.uniform(agent.low, agent.high) if step < 190 else np.nan
        world.step()
        assert len([variable.get() for variable in world.variables]) == SIZES[robot][2]
    world.reset(0)
    agent.inputs[:] = 0.5
    world.step()
    assert text != "0" or np.isfinite(agent.outputs).all()


# --- the Volksbot -----------------------------------------------------------------------------------------------------


def driven(world: VolksbotWorld, right: float, left: float, steps: int) -> tuple[float, float]:
    """x and z of the body, after so many steps from the start."""
    world.reset(0)
    for _ in range(steps):
        world.agents[0].inputs[:] = right, left
        world.step()
    x, _, z = numbers(variables(world)["/Sim/Volksbot/Body/Position"])
    return x, z


def test_both_wheels_drive_it_along_the_last_component_at_10_cm_a_second_until_a_wall() -> None:
    world = VolksbotWorld()
    assert driven(world, 0.0, 0.0, 100) == pytest.approx((0.1, 0.0), abs=1e-6)
    x, z = driven(world, 1.0, 1.0, 300)
    assert x == pytest.approx(0.1, abs=0.01)
    assert z == pytest.approx(0.3, abs=0.01)
    assert world.agents[0].outputs.tolist() == pytest.approx([5.73, 5.73], abs=0.01), "degrees a step"
    assert driven(world, -1.0, -1.0, 300)[1] == pytest.approx(-0.3, abs=0.01)
    assert driven(world, 1.0, 1.0, 1000)[1] == driven(world, 1.0, 1.0, 1500)[1] < 0.5, "a wall"
    assert driven(world, 0.7, -0.2, 123) == driven(VolksbotWorld(), 0.7, -0.2, 123), (
        "every episode is the same"
    )


def test_the_right_wheel_alone_turns_it_to_the_left() -> None:
    world = VolksbotWorld()
    driven(world, 1.0, 0.0, 50)
    _, yaw, _ = numbers(variables(world)["/Sim/Volksbot/Body/Orientation"])
    assert 20.0 < yaw < 80.0
    assert driven(world, 1.0, 0.9, 200)[0] > 0.1
