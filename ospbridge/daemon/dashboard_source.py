"""The daemon for eyes: what a page that looks on asks for, such as the dashboard, answered from what the daemon knows.

It drives nothing and has no vote; looking on at an agent is what any observer at the hub does.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ospbridge.errors import SimulatorNotFound
from ospbridge.hub.descriptions import AgentDescription
from ospbridge.hub.replies import Moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospbridge.daemon.notifying import Overlook
    from ospbridge.daemon.observers import Observers
    from ospbridge.hub.status import StatusReply
    from ospbridge.observe.recent import Recent, Warned

__all__ = ["DashboardSource"]

PATIENCE: Final = 3600.0
"""Seconds for one wait for moments; another one follows."""
MOST_AT_ONCE: Final = 128
"""Moments that somebody who looks now and then is told; those before them are left out."""


class DashboardSource:
    """What ``ospbridge.dashboard.streaming`` says, of the whole daemon. ``recent`` has its warnings."""

    def __init__(self, overlook: Overlook, recent: Recent) -> None:
        self._overlook = overlook
        self._recent = recent

    def statuses(self) -> Sequence[StatusReply]:
        return self._overlook.statuses()

    def warnings(self) -> Sequence[Warned]:
        return self._recent.warnings

    @contextmanager
    def watching(self, simulator: str, agent: str) -> Iterator[_Watching]:
        """Look on at an agent. Raises AgentNotFound, SimulatorNotFound."""
        conductor = next((c for c in self._overlook.conductors if c.settings.name == simulator), None)
        if conductor is None:
            raise SimulatorNotFound(f"the daemon has no simulator {simulator!r}")
        conductor.supervisor.need_simulator()
        watching = _Watching(conductor.observers, agent)
        try:
            yield watching
        finally:
            conductor.observers.leave(watching)


class _Watching:
    """An observer of one agent. Raises AgentNotFound when it is made."""

    def __init__(self, observers: Observers, agent: str) -> None:
        self._observers = observers
        self._agent = agent
        held, self._told = observers.join(agent, self)
        task = held.task
        self.description = AgentDescription.of(
            held.interface,
            task.observation_space,
            task.action_space,
            observation_names=task.observation_names,
            action_names=task.action_names,
        )

    async def moments(self) -> Moments:
        """What came since the last time, as soon as something has. Raises SessionLost."""
        channel = self._observers.channels.get(self._agent)
        skipped = 0
        if channel is not None and channel.last - self._told > MOST_AT_ONCE:
            skipped = channel.last - MOST_AT_ONCE - self._told
            self._told += skipped
        found = Moments([])
        while not found.moments:
            found = await self._observers.since(self._agent, self, self._told, PATIENCE)
        self._told = found.moments[-1].number
        return Moments(found.moments, found.dropped + skipped)
