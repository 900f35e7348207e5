"""One upstream of the daemon, whole: its link and what is done for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ospbridge.daemon.relay.driving import Driving
from ospbridge.daemon.relay.link import Link
from ospbridge.hub.messages import UpstreamStatus
from ospbridge.observe import logs
from ospbridge.rllink.client import Notice, StateArrived

if TYPE_CHECKING:
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.settings import Upstream
    from ospbridge.rllink.client import Event

__all__ = ["Relay"]

log = logs.get(__name__)


class Relay:
    """``run`` serves ``upstream`` until cancelled; the conductor's ``run`` must be running."""

    def __init__(self, upstream: Upstream, conductor: Conductor) -> None:
        self.upstream = upstream
        self.link = Link(
            upstream.address, dialect=upstream.dialect, limits=upstream.limits, on_event=self._event
        )
        self.driving = Driving(upstream, conductor, self.link)

    @property
    def status(self) -> UpstreamStatus:
        """How it stands."""
        connection, learner = self.link.connected, self.driving.learner
        return UpstreamStatus(
            str(self.link.address),
            self.upstream.mode.value,
            self.link.trouble,
            connection.dialect.name if connection is not None else "",
            self.driving.weights_seq_no,
            learner.batches,
            learner.steps,
            learner.discarded + self.driving.dropped,
        )

    async def run(self) -> None:
        """Raises ConfigurationError or UsageError for what no waiting can mend."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.link.run)
            nursery.start_soon(self.driving.run)

    def _event(self, event: Event) -> None:
        if isinstance(event, StateArrived):
            # Some servers push weights; a driver asks for those that it acts with.
            log.debug(
                "weights came unasked", upstream=str(self.link.address), weights_seq_no=event.weights.seq_no
            )
        elif isinstance(event, Notice):
            log.warning(
                "the upstream said what nobody asked", upstream=str(self.link.address), text=event.text
            )
