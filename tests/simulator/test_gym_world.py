"""Gymnasium environments as a world: names, ranges, actions, seeds, ends of episodes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ospbridge.errors import ConfigurationError, WorldFailed
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.gym_world import (
    EPISODE_ENDED,
    GymWorld,
    action_reader,
    agent_base_name,
    observation_writer,
)
from ospbridge.simulator.udp import UdpSimulator
from tests.simulator.raw import RawClient


def names(world: GymWorld) -> list[list[str]]:
    face = world.agents[0].interface
    return [[value.name for value in values] for values in (face.inputs, face.outputs, face.infos)]


def test_cartpole_has_names_that_say_what_the_numbers_mean() -> None:
    world = GymWorld(["CartPole-v1"])
    assert world.agents[0].name == "cart"
    assert names(world) == [
        ["/cart/push"],
        ["/cart/position", "/cart/velocity", "/pole/angle", "/pole/velocity"],
        ["/episode/reward", "/episode/terminated", "/episode/truncated"],
    ]
    face = world.agents[0].interface
    assert [(value.min, value.max) for value in face.inputs] == [(0.0, 1.0)]
    assert face.outputs[1].max == math.inf, "an infinite range is announced as it is"
    assert [(value.min, value.max) for value in face.infos] == [(-math.inf, math.inf), (0, 1), (0, 1)]


@pytest.mark.parametrize(
    "env_id, agent, inputs",
    [
        ("Pendulum-v1", "pendulum", ["/pendulum/torque"]),
        ("MountainCar-v0", "car", ["/car/push"]),
        ("FrozenLake-v1", "frozenlake", ["/action/0"]),
    ],
)
def test_other_environments_are_named(env_id: str, agent: str, inputs: list[str]) -> None:
    world = GymWorld([env_id])
    assert world.agents[0].name == agent
    assert names(world)[0] == inputs
    # Neither namespace nor version is part of it, and what occurs several times is numbered.
    assert agent_base_name("ale_py:ALE/Pong-v5") == "pong"
    assert [agent.name for agent in GymWorld([env_id, env_id]).agents] == [f"{agent}1", f"{agent}2"]


@pytest.mark.parametrize(
    "space, count, inputs, expected",
    [
        (spaces.Discrete(3), 1, [1.4], 1),
        (spaces.Discrete(3), 1, [7.0], 2),
        (spaces.Discrete(3, start=-1), 1, [-3.0], -1),
        (spaces.MultiDiscrete([2, 3]), 2, [0.6, 9.0], [1, 2]),
        (spaces.MultiBinary(3), 3, [0.4, 0.6, 1.0], [0, 1, 1]),
        (spaces.Box(-1, 1, (2, 2), np.float64), 4, [0.5, -0.5, 1.0, 0.0], [[0.5, -0.5], [1.0, 0.0]]),
        (spaces.Box(0, 9, (2,), np.int32), 2, [3.6, 10.0], [4, 9]),
        (spaces.Box(-0.1, 0.1, (2,), np.float64), 2, [-0.1, 0.1], [-0.1, 0.1]),
        (spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64), 2, [-(2.0**63), 2.0**63], [-(2**63), 2**63 - 1]),
    ],
)
def test_action_spaces_become_inputs(space: Any, count: int, inputs: list[float], expected: Any) -> None:
    reader = action_reader("X-v0", space)
    assert len(reader.values) == count
    action = reader.convert(np.array(inputs, np.float32))
    assert space.contains(action)
    assert np.array_equal(action, expected)


@pytest.mark.parametrize(
    "space, seen, expected",
    [
        (spaces.Discrete(5), 3, [3]),
        (spaces.Box(0, 1, (2, 2)), np.array([[0, 1], [0.5, 0.25]], np.float32), [0, 1, 0.5, 0.25]),
        (
            spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,)))),
            (1, np.array([0.5], np.float32)),
            [0, 1, 0.5],
        ),
        (
            spaces.Dict(a=spaces.Box(0, 1, (1,)), b=spaces.Discrete(2)),
            {"a": np.array([0.5]), "b": 0},
            [0.5, 1, 0],
        ),
        (spaces.MultiBinary(2), np.array([1, 0], np.int8), [1, 0]),
    ],
)
def test_observation_spaces_become_outputs(space: Any, seen: Any, expected: list[float]) -> None:
    writer = observation_writer("X-v0", space)
    assert len(writer.values) == len(expected)
    assert all(value.name.startswith("/observation/") for value in writer.values)
    assert np.array_equal(np.asarray(writer.convert(seen), np.float32), np.array(expected, np.float32))


@pytest.mark.parametrize(
    "form, space, told",
    [
        (action_reader, spaces.Text(5), "no form as inputs"),
        (action_reader, spaces.Dict(a=spaces.Discrete(2)), "no form as inputs"),
        (observation_writer, spaces.Sequence(spaces.Discrete(2)), r"numbers: Sequence\("),
        (
            observation_writer,
            spaces.Dict(a=spaces.Tuple((spaces.Sequence(spaces.Discrete(2)),))),
            "numbers: Dict",
        ),
        (observation_writer, spaces.Dict(a=spaces.Tuple(()), b=spaces.Discrete(2)), "numbers: Dict"),
    ],
)
def test_spaces_without_a_form_are_refused_with_a_hint(form: Any, space: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told) as refused:
        form("X-v0", space)
    assert "wrapper" in refused.value.hint


def test_a_bound_that_no_float_of_four_bytes_holds_is_none() -> None:
    space = spaces.Box(-1e300, np.finfo(np.float64).max, (1,), np.float64)
    for values, _ in (action_reader("X-v0", space), observation_writer("X-v0", space)):
        assert [(value.min, value.max) for value in values] == [(-math.inf, math.inf)]


def test_unknown_environments_are_refused_with_a_hint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="CartPoll-v1") as refused:
        GymWorld(["CartPoll-v1"])
    assert refused.value.hint
    assert "--env minigrid:ID" in refused.value.hint
    for env_id in ("a:b:C-v0", ":C-v0"):
        with pytest.raises(ConfigurationError, match=f"'{env_id}' cannot be made: ValueError"):
            GymWorld([env_id])
    (tmp_path / "needy_worlds.py").write_text("import not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    for env_id in ("not_there:C-v0", "needy_worlds:C-v0"):
        with pytest.raises(ConfigurationError, match="needs the module not_there, which is not installed"):
            GymWorld([env_id])
    with pytest.raises(ConfigurationError, match="at least one"):
        GymWorld([])


MISSING = gymnasium.error.DependencyNotInstalled


@pytest.mark.parametrize(
    "error, told, hint",
    [
        (ImportError("install shimmy"), "cannot be made: ImportError: install shimmy", ""),
        (TypeError("missing 1 argument"), "cannot be made: TypeError: missing 1 argument", ""),
        (AssertionError(), rf"cannot be made: AssertionError in {__file__}, line \d+", ""),
        (MISSING("Box2D: pip install X"), "not installed: Box2D: pip install X", "install it"),
        (MISSING("No module named 'mujoco_py'."), "'mujoco_py'", "later version"),
    ],
    ids=["import", "type", "without a text", "box2d", "old mujoco"],
)
def test_an_environment_that_cannot_be_made_says_why_and_what_to_install(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str, hint: str
) -> None:
    def broken(**_: Any) -> gymnasium.Env[Any, Any]:
        raise error

    spec = gymnasium.envs.registration.EnvSpec("Broken-v0", entry_point=broken)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    with pytest.raises(ConfigurationError, match=told) as refused:
        GymWorld(["Broken-v0"])
    assert "Broken-v0" in refused.value.message
    assert hint in refused.value.hint


def test_a_finished_environment_stays_frozen_until_the_reset() -> None:
    world = GymWorld(["CartPole-v1"])
    (agent,) = world.agents
    world.reset(3)
    agent.inputs[:] = 1.0
    steps = 0
    while not agent.infos[1]:
        world.step()
        steps += 1
    assert world.take_events() == [EPISODE_ENDED]
    outputs = agent.outputs.copy()
    world.step()
    assert world.take_events() == []
    assert np.array_equal(agent.outputs, outputs)
    assert list(agent.infos) == [0.0, 1.0, 0.0]
    world.reset(3)
    world.step()
    assert list(agent.infos) == [0.0, 0.0, 0.0]
    assert not np.array_equal(agent.outputs, outputs)


def test_each_agent_has_a_seed_of_its_own_derived_from_the_first() -> None:
    world = GymWorld(["CartPole-v1"] * 3)
    world.reset(40)
    world.step()
    for index, agent in enumerate(world.agents):
        local, _ = gymnasium.make("CartPole-v1").reset(seed=40 + index)
        assert np.array_equal(agent.outputs, local)
    world.reset(-1)
    world.reset(0)


def test_nan_inputs_rest() -> None:
    world = GymWorld(["Pendulum-v1", "CartPole-v1"])
    world.reset(1)
    world.step()
    for agent in world.agents:
        agent.inputs[:] = np.nan
    world.step()
    assert all(np.isfinite(agent.outputs).all() for agent in world.agents)


def test_physics_parameters_are_variables() -> None:
    world = GymWorld(["CartPole-v1"])
    parameters = {variable.name: variable for variable in world.variables}
    gravity = parameters["/Sim/cart/Parameter/gravity"]
    assert gravity.get() == "9.8"
    assert gravity.set("1.5")
    assert not gravity.set("much")
    assert gravity.get() == "1.5"
    world.reset(1)
    local = gymnasium.make("CartPole-v1")
    local.unwrapped.gravity = 1.5  # type: ignore[attr-defined]
    local.reset(seed=1)
    world.step()
    world.agents[0].inputs[:] = 1.0
    for _ in range(3):
        world.step()
        assert np.array_equal(world.agents[0].outputs, local.step(1)[0])


@pytest.mark.loopback
@pytest.mark.parametrize("env_id, profile", [("CartPole-v1", NERD), ("Pendulum-v1", DOCUMENT)])
def test_episodes_through_the_server_equal_the_local_environment(profile: Profile, env_id: str) -> None:
    local = gymnasium.make(env_id)
    rng = np.random.default_rng(11)
    with (
        UdpSimulator(GymWorld([env_id]), port=0, profile=profile) as simulator,
        RawClient(simulator.address, profile) as client,
    ):
        client.overview()
        inputs = client.info(1)[0]
        client.register(1)
        for episode in range(2):
            client.reset(100 + episode)
            seen, _ = local.reset(seed=100 + episode)
            outputs, infos, _ = client.step(1, 0.0)
            assert np.array_equal(outputs, np.float32(seen)), "the first step publishes the first observation"
            assert list(infos) == [0.0, 0.0, 0.0]
            ended = False
            for _ in range(600):
                push = np.float32(rng.uniform(inputs[1], inputs[2]))
                discrete = isinstance(local.action_space, spaces.Discrete)
                seen, reward, terminated, truncated, _ = local.step(
                    round(float(push)) if discrete else [push]
                )
                outputs, infos, _ = client.step(1, float(push))
                assert np.array_equal(outputs, np.float32(seen))
                assert np.array_equal(infos, np.array([reward, terminated, truncated], np.float32))
                ended = terminated or truncated
                if ended:
                    break
            assert ended


class Untidy(gymnasium.Env[Any, Any]):
    """Fails as it is told to, and makes an array of a number."""

    action_space = spaces.Box(-1.0, 1.0, (1,))
    observation_space = spaces.Box(-1.0, 1.0, (2,))

    def __init__(self) -> None:
        self.fails = False
        self.width = 2
        self.reward: Any = 0.0
        self.latest = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self.fails:
            raise RuntimeError("no way back")
        self.latest = np.zeros(3)  # type: ignore[assignment]  # as nobody checks types there
        return np.zeros(self.width), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.fails:
            raise RuntimeError("no way on")
        return np.zeros(self.width), self.reward, False, False, {}


@pytest.fixture
def untidy(monkeypatch: pytest.MonkeyPatch) -> GymWorld:
    spec = gymnasium.envs.registration.EnvSpec("Untidy-v0", entry_point=lambda **_: Untidy())
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return GymWorld(["Untidy-v0"])


@pytest.mark.parametrize(
    "attribute, value, when, why",
    [
        ("fails", True, "a reset", "RuntimeError: no way back"),
        ("fails", True, "a step", "RuntimeError: no way on"),
        ("width", 3, "a step", "has 3 numbers, its observation space 2"),
        ("width", 3, "a reset", "has 3 numbers, its observation space 2"),
        ("reward", None, "a step", "TypeError"),
    ],
)
def test_an_environment_that_fails_or_does_not_fit_its_space_says_which_and_why(
    untidy: GymWorld, attribute: str, value: object, when: str, why: str
) -> None:
    untidy.reset(1)
    untidy.step()
    setattr(untidy.hosted[0].env.unwrapped, attribute, value)
    with pytest.raises(WorldFailed, match=rf"'Untidy-v0' of agent 'untidy' failed in {when}: .*{why}"):
        untidy.reset(1) if when == "a reset" else untidy.step()
    untidy.close()
