"""A line in the log for agents that begin to play together although their tasks repeat an action unlike often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.observe import logs
from ospbridge.task.pacing import HINT, unlike

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.daemon.attachment import Attachment

__all__ = ["Paces"]

log = logs.get(__name__)
MOST_TOLD: Final = 64
"""So many combinations say enough, where agents come and go for weeks."""


class Paces:
    """Each combination is told once."""

    def __init__(self) -> None:
        self._told: set[tuple[tuple[str, int], ...]] = set()

    def began(self, playing: Iterable[Attachment]) -> None:
        """These play together from now on."""
        repeats = unlike(attachment.held.task for attachment in playing)
        combination = tuple(sorted(repeats.items()))
        if not repeats or combination in self._told or len(self._told) >= MOST_TOLD:
            return
        self._told.add(combination)
        log.warning(
            "actions of agents differ in length",
            action_repeat=repeats,
            taken=max(repeats.values()),
            hint=HINT,
        )
