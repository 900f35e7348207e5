"""Comparing an environment over OSP with the local one it hosts, and what two of them did with what ran."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import gymnasium
import numpy as np


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


def play_side_by_side(make: Callable[[str], gymnasium.Env[Any, Any]], steps: int) -> None:
    """Threads of their own make environments for agent1 and agent2, of one input, and step them in one barrier."""
    together = Barrier(2)

    def play(agent: str, sign: int) -> None:
        env = make(agent)
        together.wait(30)
        env.reset(seed=1)
        for number in range(steps):
            *_, truncated, info = env.step(np.full(1, sign * number / 1024, np.float32))
            assert not truncated, info["reason"]
        together.wait(30)
        env.close()

    with ThreadPoolExecutor(2) as pool:
        for played in [pool.submit(play, "agent1", 1), pool.submit(play, "agent2", -1)]:
            played.result(60)


def assert_each_ran_once(ran: list[dict[str, Any]], steps: int) -> None:
    """After the reset and its neutral step: each step, once, with the inputs of both."""
    assert [entry["kind"] for entry in ran[: steps + 2]] == ["reset"] + ["step"] * (steps + 1)
    for number, entry in enumerate(ran[2 : steps + 2]):
        one, other = entry["agents"]["agent1"], entry["agents"]["agent2"]
        assert (one["inputs"], other["inputs"]) == ([number / 1024], [-number / 1024])
        assert len(one["votes"]) == len(other["votes"]) == 1
