"""A task's spaces as gymnasium's."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ospbridge.interface import BoxSpace, Space

__all__ = ["gym_space"]


def gym_space(space: Space) -> gymnasium.Space[Any]:
    """Box of float32, or Discrete."""
    if isinstance(space, BoxSpace):
        return gymnasium.spaces.Box(space.low, space.high, dtype=np.float32)
    return gymnasium.spaces.Discrete(space.n)
