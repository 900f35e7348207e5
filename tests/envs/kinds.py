"""The kinds of environments of a simulator with one agent, and what they have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import ospbridge

assert ospbridge.__version__


def single(address: str, **options: Any) -> Any:
    return gymnasium.make("ospbridge/Agent-v0", simulator=address, **options).unwrapped


def vector(address: str, **options: Any) -> Any:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, simulator=address, **options)


def parallel(address: str, **options: Any) -> Any:
    pytest.importorskip("pettingzoo")
    from ospbridge.envs.parallel import parallel_env

    return parallel_env(simulator=address, **options)


def step(env: Any) -> tuple[Any, ...]:
    """One, of two inputs at rest."""
    if hasattr(env, "possible_agents"):
        told: tuple[Any, ...] = env.step({name: np.zeros(2, np.float32) for name in env.agents})
        return told
    if hasattr(env, "num_envs"):
        found: tuple[Any, ...] = env.step(np.zeros((1, 2), np.float32))
        return found
    alone: tuple[Any, ...] = env.step(np.zeros(2, np.float32))
    return alone


def only(found: Any) -> Any:
    """What the only agent got, of a reset or a step of whichever kind."""
    if isinstance(found, dict):
        (found,) = found.values()
    return found[0] if getattr(found, "ndim", 0) and len(found) == 1 else found


def marked(directory: Path) -> Path:
    """A scenario that watches a variable, and whose episodes an event ends."""
    scenario = directory / "marked.toml"
    scenario.write_text(
        'name = "marked"\n[[agent]]\n[agent.observe]\nvalues = ["/Synthetic/Value/00001"]\n'
        '[agent.episode]\nterminated_on = ["/Synthetic/Mark"]\n',
        encoding="utf-8",
    )
    return scenario
