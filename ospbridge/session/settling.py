"""What a simulator must recover from: goodbyes before a restart of the communication, and that before an INIT.

A real server that is told END and RESET_COMMUNICATION within milliseconds deletes a handler twice, and dies; an INIT
right behind a restart is lost, or kills it. This process remembers what it has done, in whichever session.
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

from ospbridge.osp.timing import RESTART_SETTLES

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["GOODBYES", "RESTARTS", "Settling"]


class Settling:
    """When something was done to each simulator last; what is settled is forgotten with the next."""

    def __init__(self) -> None:
        self._done: dict[Endpoint, float] = {}

    def __len__(self) -> int:
        return len(self._done)

    def note(self, server: Endpoint) -> None:
        """It was just done to this one."""
        now = monotonic()
        for other, at in list(self._done.items()):
            if now - at > RESTART_SETTLES:
                self._done.pop(other, None)
        self._done[server] = now

    def left(self, server: Endpoint) -> float:
        """Seconds until that is settled."""
        at = self._done.get(server)
        return 0.0 if at is None else max(0.0, at + RESTART_SETTLES - monotonic())


GOODBYES: Final = Settling()
"""END was said to a handler: until it is settled, the communication must not be restarted."""
RESTARTS: Final = Settling()
"""The communication was restarted: until it is settled, nobody must join."""
