"""How long completions of one session took to come, beyond what could be seen: so long is waited before one is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LATEST", "Lateness"]

LATEST: Final = 30.0
"""Seconds that a datagram may be late: so long after an anomaly inputs are read back."""
RESET_LATEST: Final = 10.0
"""Seconds behind a reset that was taken for done: what completes later was another."""


class Lateness:
    """Learned from what came after all, and from resets that took their time. Time is an argument."""

    __slots__ = ("_begun", "_read_back", "behind", "reset_took")

    def __init__(self) -> None:
        self.behind = 0.0
        """Seconds, at most, that a step's completion came behind what the clock showed."""
        self.reset_took = 0.0
        """Seconds that the longest reset took of which that is known."""
        self._read_back: dict[int, float] = {}
        """Of the latest step, agents whose completion was taken for lost: when the clock had moved."""
        self._begun: float | None = None
        """When the reset was begun whose completion was taken for lost."""

    def taken_for_lost(self, agents: Iterable[int], moved_at: float) -> None:
        """Completions of these agents are not awaited any more; the clock had moved then."""
        self._read_back.update(dict.fromkeys(agents, moved_at))

    def believed(self, agent_id: int) -> None:
        """A completion came of that agent's latest step."""
        self._read_back.pop(agent_id, None)

    def came_behind(self, agent_id: int, now: float) -> None:
        """A completion came that is not the one awaited: it may be one that was taken for lost."""
        moved_at = self._read_back.pop(agent_id, None)
        if moved_at is not None and now - moved_at <= LATEST:
            self.behind = max(self.behind, now - moved_at)

    def begin_reset(self) -> None:
        """Another reset is asked for."""
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
