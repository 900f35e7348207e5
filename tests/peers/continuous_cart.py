"""CartPole whose cart is pushed by any force between full left and full right: one number in [-1, 1].

``continuous_cart:continuous/CartPole-v1`` names it for Gymnasium, and ``continuous_cart.toml`` is its task.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

FULL = 10.0


class ContinuousCartPole(CartPoleEnv):
    """An action is the share of the full force."""

    action_space: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._choices = self.action_space
        self._forces = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = self._forces

    def step(self, action: Any) -> Any:
        self.force_mag = FULL * float(np.clip(action[0], -1.0, 1.0))
        # Gymnasium's own step asks whether its choice is one of the space.
        self.action_space = self._choices
        try:
            return super().step(1)  # type: ignore[no-untyped-call]  # Gymnasium says none
        finally:
            self.action_space = self._forces


gymnasium.register("continuous/CartPole-v1", entry_point=ContinuousCartPole, max_episode_steps=500)
