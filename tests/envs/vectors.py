"""Running simulators and environments, and comparing what they return."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator


@contextmanager
def cart_poles(count: int, *, copies: int = 1, **options: Any) -> Iterator[list[str]]:
    """Addresses of so many simulators, each with ``copies`` of CartPole."""
    with ExitStack() as stack:
        yield [
            str(
                stack.enter_context(
                    UdpSimulator(GymWorld(["CartPole-v1"] * copies), port=0, **options)
                ).address
            )
            for _ in range(count)
        ]


class HeldWorld(SyntheticWorld):
    """Where ``hold`` was called, its next steps wait until they are let go; ``begun`` says that one does."""

    def __init__(self, *sizes: int, agents: int = 1) -> None:
        super().__init__(*sizes, agents=agents)
        self.begun = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def hold(self) -> None:
        self.begun.clear()
        self.go.clear()

    def step(self) -> None:
        self.begun.set()
        assert self.go.wait(30)
        super().step()


def fleet(addresses: list[str] | str, count: int, **options: Any) -> VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=count, simulator=addresses, **options)


def trajectory(envs: VectorEnv[Any, Any, Any], steps: int) -> list[Any]:
    """Everything that a reset, steps with random carts' actions, and the resets that the mode asks for return."""
    mode = envs.metadata["autoreset_mode"]
    choices = np.random.default_rng(7)
    told: list[Any] = [envs.reset(seed=7)]
    for _ in range(steps):
        actions = choices.integers(2, size=(envs.num_envs, 1)).astype(np.float32)
        result = envs.step(actions)
        told.append(result)
        ended = result[2] | result[3]
        if mode is AutoresetMode.DISABLED and ended.any():
            told.append(envs.reset(options={"reset_mask": ended}))
    envs.close()
    return told


def assert_same(one: Any, other: Any, where: str = "") -> None:
    """Equal types, shapes and contents, all the way down; NaN equals NaN."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for at, (mine, its) in enumerate(zip(one, other, strict=True)):
            assert_same(mine, its, f"{where}[{at}]")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        if one.dtype == object:
            assert_same(list(one), list(other), where)
        else:
            np.testing.assert_array_equal(one, other, where)
    else:
        assert one == other or (math.isnan(one) and math.isnan(other)), where


def assert_equal_episodes(
    env: gymnasium.Env[Any, Any], local_id: str, *, episodes: int, seed: int = 0
) -> int:
    """Seeded episodes with random actions: observations, rewards and flags equal to float32. Returns the steps."""
    local = gymnasium.make(local_id)
    actions = np.random.default_rng(seed)
    steps = 0
    for episode in range(episodes):
        observation, info = env.reset(seed=seed + episode)
        wanted, _ = local.reset(seed=info["osp_seed"])
        np.testing.assert_array_equal(observation, wanted.astype(np.float32))
        ended = False
        while not ended:
            if isinstance(local.action_space, gymnasium.spaces.Discrete):
                choice = int(actions.integers(local.action_space.n))
                discrete = isinstance(env.action_space, gymnasium.spaces.Discrete)
                sent = choice if discrete else np.array([choice], np.float32)
            else:
                sent = choice = local.action_space.sample()
            observation, reward, terminated, truncated, _ = env.step(sent)
            wanted, wanted_reward, *wanted_flags, _ = local.step(choice)
            np.testing.assert_array_equal(observation, wanted.astype(np.float32))
            assert np.float32(reward) == np.float32(wanted_reward)
            assert [terminated, truncated] == wanted_flags
            ended = terminated or truncated
            steps += 1
    local.close()
    return steps
