"""What the dashboard asks of whom it shows. The daemon's side of it is ``ospbridge.daemon.dashboard_source``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from ospbridge.hub.descriptions import AgentDescription
    from ospbridge.hub.replies import Moments
    from ospbridge.hub.status import StatusReply
    from ospbridge.observe.recent import Warned

__all__ = ["Source", "Watching"]


class Watching(Protocol):
    """A look at one agent, for as long as its context lasts."""

    @property
    def description(self) -> AgentDescription:
        """What its numbers are."""

    async def moments(self) -> Moments:
        """The latest moments that were not told before, as soon as there are some.

        Old ones are left out rather than told late; ``dropped`` counts them. Raises SessionLost where the agent is gone
        or has become another one.
        """


class Source(Protocol):
    """Answers at once, but for ``Watching.moments``."""

    def statuses(self) -> Sequence[StatusReply]:
        """One for each simulator; their ``name`` tells them apart."""

    def warnings(self) -> Sequence[Warned]:
        """The latest, the oldest first."""

    def watching(self, simulator: str, agent: str) -> AbstractContextManager[Watching]:
        """Look on at an agent of the simulator of that name. Raises AgentNotFound, SimulatorNotFound."""
