"""What an environment needs of whatever drives its agent: a session of this process, or a daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ospbridge.interface import AgentInterface, BoxSpace, Feedback, Space

__all__ = ["Seat"]


class Seat(Protocol):
    """One agent, taken, and its task at work."""

    interface: AgentInterface
    observation_space: BoxSpace
    action_space: Space
    observation_names: list[str]
    """What the numbers of an observation are."""
    action_names: list[str]
    """What the numbers of an action are; of no meaning where it is discrete."""

    def reset(self, seed: int) -> Feedback:
        """Reset the world and let it settle; ``seed`` in [1, 2**31 - 1]."""
        ...

    def step(self, action: Any) -> Feedback:
        """One action of ``action_space``."""
        ...

    def cancel_step(self) -> None:
        """Nobody is told what the latest step brought, as after Ctrl-C: the next one must not go on from there."""
        ...

    def close(self) -> None:
        """Give the agent back, within 2 s. Safe to call again."""
        ...
