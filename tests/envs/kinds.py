"""The kinds of environments of a simulator with one agent, and what they have in common."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest


def single(simulator: str | None = None, **options: Any) -> Any:
    return gymnasium.make("ospbridge/Agent-v0", simulator=simulator, **options).unwrapped


def vector(simulator: str | list[str] | None = None, num_envs: int = 1, **options: Any) -> Any:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=num_envs, simulator=simulator, **options)


def parallel(simulator: str | None = None, **options: Any) -> Any:
    pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
    from ospbridge.envs.parallel import parallel_env

    return parallel_env(simulator=simulator, **options)


EVERY_KIND = pytest.mark.parametrize("made", [single, vector, parallel])


def rest(env: Any) -> Any:
    """Zeros for each input of each agent."""
    if hasattr(env, "possible_agents"):
        return {name: np.zeros(env.action_space(name).shape, np.float32) for name in env.agents}
    return np.zeros(env.action_space.shape, np.float32)


def step(env: Any) -> Any:
    return env.step(rest(env))


def only(found: Any) -> Any:
    """What the only agent got, of a reset or a step of whichever kind."""
    if isinstance(found, dict):
        (found,) = found.values()
    return found[0] if getattr(found, "ndim", 0) and len(found) == 1 else found


def reason(info: Any) -> str:
    """What the only agent was told, by a reset or a step of whichever kind."""
    return str(only((info if "reason" in info else only(info))["reason"]))
