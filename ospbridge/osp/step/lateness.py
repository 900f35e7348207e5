"""How long completions of a simulator took to come, beyond what could be seen: so long is waited before one is lost.

And what else a session learns of the network, and hands on to the next one with the same simulator.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LATEST", "Lateness"]

LATEST: Final = 30.0
"""Seconds that a datagram may be late: so long after an anomaly inputs are read back."""
RESET_LATEST: Final = 10.0
"""Seconds behind a reset that was taken for done: what completes later was another."""

FADING: Final = 0.99
"""The share of how long a step took that still counts with the next one."""
RULE: Final = 3
"""So many steps in a row are no accident of the network."""


class Lateness:
    """Learned from what came after all, and from resets that took their time. Time is an argument."""

    __slots__ = (
        "_begun",
        "_doubted",
        "_read_back",
        "acknowledged_behind",
        "answers_between_votes",
        "astray_at",
        "behind",
        "quickest",
        "repeats",
        "reset_took",
        "step_took",
    )

    def __init__(self) -> None:
        self.behind = 0.0
        """Seconds, at most, that a step's completion came behind what the clock showed."""
        self.reset_took = 0.0
        """Seconds that the longest reset took of which that is known."""
        self.acknowledged_behind = 0
        """Steps in a row whose last vote was acknowledged only behind their completion, as the clock shows."""
        self.repeats = False
        """A vote was acknowledged more often than it was sent, in this session or in one before it."""
        self.astray_at = -inf
        """When an answer of a step last came late or twice, in this session or in one before it."""
        self.answers_between_votes = True
        """Questions are answered while votes are missing."""
        self.step_took = 0.0
        """Seconds from the last vote to the last completion, of steps that went as they should; 0: not known."""
        self.quickest = 0.0
        """Seconds that a vote and its acknowledgement took at least; 0: not known."""
        self._read_back: dict[int, float] = {}
        """Of the latest step, agents whose completion was taken for lost: when the clock had moved."""
        self._doubted: set[int] = set()
        """Those of them whose values were not seen to be that step's."""
        self._begun: float | None = None
        """When the reset was begun whose completion was taken for lost."""

    def learn_from(self, before: Lateness) -> None:
        """What a session before this one with the same simulator had seen."""
        self.behind = max(self.behind, before.behind)
        self.reset_took = max(self.reset_took, before.reset_took)
        self.acknowledged_behind = before.acknowledged_behind
        self.repeats = before.repeats
        self.astray_at = before.astray_at
        self.answers_between_votes = before.answers_between_votes
        self.step_took = before.step_took
        self.quickest = before.quickest

    @property
    def acknowledges_last(self) -> bool:
        """This simulator tells what a step brought before it acknowledges the vote that ran it, as a rule."""
        return self.acknowledged_behind >= RULE

    def taken_for_lost(self, agents: Iterable[int], moved_at: float, *, doubted: bool = False) -> None:
        """Completions of these agents are not awaited any more; the clock had moved then.

        ``doubted``: nothing showed that what was read back in their place was that step's.
        """
        found = dict.fromkeys(agents, moved_at)
        self._read_back.update(found)
        if doubted:
            self._doubted.update(found)

    def awaits(self, agent_id: int) -> bool:
        """Whether a completion of the agent's latest step was taken for lost, and may still come."""
        return agent_id in self._read_back

    def doubts(self, agent_id: int) -> bool:
        """Whether the agent's next completion may be the one that was taken for lost."""
        return agent_id in self._doubted

    def doubted_since(self, agents: Iterable[int]) -> float | None:
        """When the clock had moved of the step whose completions may still come; None where there is no such step."""
        return min(
            (self._read_back[agent_id] for agent_id in agents if agent_id in self._doubted), default=None
        )

    def believed(self, agent_id: int) -> None:
        """A completion came of that agent's latest step."""
        self._read_back.pop(agent_id, None)
        self._doubted.discard(agent_id)

    def acknowledged(self, seconds: float) -> None:
        """A vote was acknowledged so long behind it."""
        self.quickest = min(seconds, self.quickest or seconds)

    def step_ran(self, seconds: float) -> None:
        """A step was completed so long behind its last vote; an exception is forgotten again."""
        self.step_took = max(seconds, FADING * self.step_took)

    def came(self, behind: float) -> None:
        """A completion, or its values, came so long behind what the clock showed."""
        self.behind = max(self.behind, behind)

    def came_behind(self, agent_id: int, now: float) -> None:
        """A completion came that is not the one awaited: it may be one that was taken for lost."""
        moved_at = self._read_back.pop(agent_id, None)
        self._doubted.discard(agent_id)
        if moved_at is not None and now - moved_at <= LATEST:
            self.came(now - moved_at)

    def came_early(self, agent_id: int, now: float) -> None:
        """A completion came before its vote was acknowledged, and is none that was read back.

        So it is none that was taken for lost either, unless something else was read back in its place.
        """
        if agent_id in self._doubted:
            self.came_behind(agent_id, now)
        else:
            self._read_back.pop(agent_id, None)

    def begin_reset(self) -> None:
        """Another reset is asked for."""
        self._doubted.clear()
        self._begun = None

    def reset_ran(self, began: float, now: float, *, completed: bool) -> None:
        """A reset that was begun then is done; where its completion did not come it was taken for lost."""
        if completed:
            self.reset_took = max(self.reset_took, now - began)
        else:
            self._begun = began

    def reset_completed_behind(self, now: float) -> None:
        """A reset was completed unasked: it may be the one whose completion was taken for lost."""
        if self._begun is not None and now - self._begun <= RESET_LATEST:
            self.reset_took = max(self.reset_took, now - self._begun)
        self._begun = None
