"""Comparing an environment over OSP with the local one it hosts."""

from __future__ import annotations

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
                sent = np.array([choice], np.float32)
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
