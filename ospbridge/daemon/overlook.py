"""The whole daemon at a glance: what its companions, such as the metrics, and the service manager are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.hub.server import HubServer
    from ospbridge.daemon.relay.relay import Relay
    from ospbridge.hub.status import StatusReply

__all__ = ["Overlook"]

SLACK: Final = 30.0
"""Seconds by which a step may go beyond all of its limits before it is said to hang."""


class Overlook:
    """Reads, and changes nothing. One server for each conductor, in the same order."""

    def __init__(
        self, conductors: Sequence[Conductor], servers: Sequence[HubServer], relays: Sequence[Relay]
    ) -> None:
        self.conductors = conductors
        self.relays = relays
        self._servers = servers

    def statuses(self) -> list[StatusReply]:
        """One of each simulator."""
        return [server.status() for server in self._servers]

    def hanging(self, now: float) -> list[str]:
        """Simulators whose step or reset is under way for longer than any may take. Waiting is no hanging."""
        return [c.settings.title for c in self.conductors if _hangs(c, now)]

    def summary(self) -> str:
        """One line for whoever asks how the service is."""
        told = [self._simulators(), self._agents()]
        for relay in self.relays:
            status = relay.status
            told.append(f"upstream {status.address} {status.trouble or 'connected'}")
        return "; ".join(told)

    def _simulators(self) -> str:
        if len(self.conductors) == 1:
            (conductor,) = self.conductors
            return f"simulator {conductor.settings.title} {conductor.connection}"
        away = [
            f"{conductor.settings.title} {conductor.connection}"
            for conductor in self.conductors
            if not conductor.ready
        ]
        joined = (
            f"{len(self.conductors) - len(away)} of {pluralize(len(self.conductors), 'simulator')} joined"
        )
        return "; ".join([joined, *away])

    def _agents(self) -> str:
        held = [agent for conductor in self.conductors for agent in conductor.lockstep.held.values()]
        driven = sum(bool(agent.attachments) for agent in held)
        return f"{driven} of {pluralize(len(held), 'agent')} driven"


def _hangs(conductor: Conductor, now: float) -> bool:
    since = conductor.busy_since
    if since is None:
        return False
    limits, lockstep = conductor.settings.limits, conductor.lockstep
    steps = 1 + lockstep.action_repeat + lockstep.settle_steps
    longest = limits.reset + limits.step * steps + limits.query * (1 + len(lockstep.held))
    return now - since > 2 * longest + SLACK
