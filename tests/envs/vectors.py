"""Running simulators and vector environments and comparing what they return."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

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


def await_within(name: str, thread: int) -> None:
    """Until that thread is in a function of that name."""
    give_up = time.monotonic() + 30
    while True:
        frame = sys._current_frames().get(thread)
        while frame is not None and frame.f_code.co_name != name:
            frame = frame.f_back
        if frame is not None:
            return
        assert time.monotonic() < give_up
        time.sleep(0.005)


def fleet(addresses: list[str] | str, count: int, **options: Any) -> VectorEnv[Any, Any, Any]:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=count, simulator=addresses, **options)


def sync_of_singles(addresses: list[str], mode: AutoresetMode) -> VectorEnv[Any, Any, Any]:
    def maker(address: str) -> Any:
        return lambda: (
            gymnasium.make("ospbridge/Agent-v0", simulator=address, disable_env_checker=True).unwrapped
        )

    return SyncVectorEnv([maker(address) for address in addresses], autoreset_mode=mode)


def trajectory(envs: VectorEnv[Any, Any, Any], steps: int, *, seed: int = 7) -> list[Any]:
    """Everything that a reset, steps with random carts' actions, and the resets that the mode asks for return."""
    mode = envs.metadata["autoreset_mode"]
    choices = np.random.default_rng(seed)
    told: list[Any] = [envs.reset(seed=seed)]
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
