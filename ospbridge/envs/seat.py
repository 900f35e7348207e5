"""What an environment needs of whatever drives its agent: a session of this process, or a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, Feedback

__all__ = ["Seat"]


class Seat(Protocol):
    """One agent, taken."""

    interface: AgentInterface
    outputs_normalised: bool

    def reset(self, seed: int) -> Feedback:
        """Reset the world and take the neutral step; ``seed`` in [1, 2**31 - 1]."""
        ...

    def step(self, inputs: NDArray[np.float32]) -> Feedback:
        """One step with float32[n_inputs]."""
        ...

    def close(self) -> None:
        """Give the agent back, within 2 s. Safe to call again."""
        ...
