"""The environments of a vector that are agents of one lock-step group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode

from ospbridge.envs.seeding import drawn_seed, osp_seed
from ospbridge.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.envs.groups.group import Found, Group

__all__ = ["GroupSeats", "seats_of"]


class GroupSeats:
    """One group's environments: which they are, how their world is seeded, whether their episode is over."""

    def __init__(self, group: Group, first: int) -> None:
        self.group = group
        self.names = list(group.interfaces)
        self.first = first
        self.slice = slice(first, first + len(self.names))
        self.ended = False
        self.next_seed = 0
        """For the next reset; 0: to be drawn."""
        self.random, _ = np_random()

    @property
    def numbers(self) -> range:
        """Which environments they are."""
        return range(self.first, self.first + len(self.names))

    def seed(self, seed: int) -> None:
        """Gymnasium's seed for the next reset, and of those that will be drawn."""
        self.random, _ = np_random(seed)
        self.next_seed = osp_seed(seed)

    def draw(self) -> int:
        """The simulator's seed for the reset to come: what a single environment would give it."""
        seed, self.next_seed = self.next_seed, 0
        return seed or drawn_seed(self.random)

    def not_playing(self, mode: AutoresetMode) -> LocalProtocolError:
        """The error for a step without an episode."""
        which = ", ".join(map(str, self.numbers))
        hint = "call reset first"
        if mode is AutoresetMode.DISABLED:
            hint += ', with options={"reset_mask": terminations | truncations} for those that ended'
        return LocalProtocolError(
            f"the episodes of environments {which} are over, or none was begun", hint=hint
        )

    def end_together(self, found: Found) -> None:
        """The end of one episode is the end of all of the group (reset policy any)."""
        first = next(
            (name for name, feedback in found.items() if feedback.terminated or feedback.truncated), None
        )
        if first is None:
            return
        self.ended = True
        for feedback in found.values():
            if not feedback.over:
                feedback.truncate(
                    f"the episode of agent {first!r} ended, and all agents of a simulator reset together"
                )


def seats_of(groups: Sequence[Group]) -> list[GroupSeats]:
    """Those of a vector over these groups, whose agents are numbered through."""
    found = []
    first = 0
    for group in groups:
        found.append(GroupSeats(group, first))
        first += len(group.interfaces)
    return found
