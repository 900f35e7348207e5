"""One upstream of the daemon, whole: its link and what is done for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import trio

from ospbridge.daemon.relay.driver import Driving
from ospbridge.daemon.relay.link import Link, Mode
from ospbridge.daemon.relay.uploader import Observing
from ospbridge.hub.status import UpstreamStatus
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.rllink.client import StateArrived

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from ospbridge.daemon.conductor import Conductor
    from ospbridge.daemon.relay.link import Upstream
    from ospbridge.rllink.client import Event

__all__ = ["Relay"]

log = logs.get(__name__)


class Relay:
    """``run`` serves ``upstream`` until cancelled; the ``run`` of the simulators' conductors must be running.

    Its context is left when no environment is attached any more.
    """

    def __init__(self, upstream: Upstream, conductors: Sequence[Conductor]) -> None:
        self.upstream = upstream
        self.at_rest = trio.Event()
        """It drives no agent any more; its server may still have something to say."""
        self.link = Link(
            upstream.address,
            dialect=upstream.dialect,
            limits=upstream.limits,
            largest=upstream.largest_message,
            most_arrays=upstream.most_arrays,
            on_event=self._event,
        )
        self._unasked = Sparing()
        self._work = (
            Driving(upstream, conductors, self.link)
            if upstream.mode is Mode.DRIVE
            else Observing(upstream, conductors, self.link)
        )

    @property
    def driving(self) -> Driving:
        """What it does in the mode of that name."""
        assert isinstance(self._work, Driving)
        return self._work

    @property
    def status(self) -> UpstreamStatus:
        """How it stands."""
        connection = self.link.connected
        learner = self.driving.learner if isinstance(self._work, Driving) else None
        troubles = (self.link.trouble, self._work.trouble, "" if learner is None else learner.trouble)
        told = UpstreamStatus(
            str(self.link.address),
            self.upstream.mode.value,
            "; ".join(filter(None, troubles)),
            connection.dialect.name if connection is not None else "",
        )
        if isinstance(self._work, Observing):
            return msgspec.structs.replace(
                told,
                discarded=self._work.discarded,
                delivered=self._work.delivered,
                spool=self._work.spool,
            )
        assert learner is not None
        return msgspec.structs.replace(
            told,
            weights_seq_no=self.driving.weights_seq_no,
            batches=learner.batches,
            steps=learner.steps,
            discarded=learner.discarded,
        )

    def drain_within(self, seconds: float) -> None:
        """What is not in the spool then is dropped when the context is left."""
        if isinstance(self._work, Observing):
            self._work.drain = seconds

    async def run(self) -> None:
        """Raises ConfigurationError or UsageError for what no waiting can mend."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.link.run)
            nursery.start_soon(self._at_work)

    async def _at_work(self) -> None:
        try:
            await self._work.run()
        finally:
            self.at_rest.set()

    def __enter__(self) -> Self:
        if isinstance(self._work, Observing):
            self._work.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if isinstance(self._work, Observing):
            self._work.__exit__(kind, error, where)

    def _event(self, event: Event) -> None:
        if isinstance(event, StateArrived):
            # Some servers push weights; a driver asks for those that it acts with, and an observer needs none.
            log.debug(
                "weights came unasked", upstream=str(self.link.address), weights_seq_no=event.weights.seq_no
            )
        elif self._unasked.due():
            log.warning(
                "the upstream said what nobody asked", upstream=str(self.link.address), text=event.text
            )
