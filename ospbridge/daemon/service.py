"""The daemon's life: open the hub, join, serve, and leave in order when told to."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub_server import HubServer
from ospbridge.daemon.recording import Recording
from ospbridge.daemon.relay.relay import Relay
from ospbridge.observe import logs
from ospbridge.observe.trace import TraceWriter
from ospbridge.transport.tls import TlsListener
from ospbridge.transport.unix import HubSocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ospbridge.daemon.settings import Settings

__all__ = ["serve"]

log = logs.get(__name__)


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises what cannot be mended: ConfigurationError, SessionLost and others."""
    with ExitStack() as stack:
        signals = stack.enter_context(trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT))
        recording = None
        if settings.record is not None:
            recording = stack.enter_context(Recording(settings.record, simulator=str(settings.simulator)))
        listener = HubSocket(settings.hub)
        stack.callback(listener.close)
        remote = None
        if settings.listen is not None:
            remote = TlsListener(settings.listen)
            stack.callback(remote.close)
        trace = stack.enter_context(TraceWriter(settings.trace)) if settings.trace is not None else None
        conductor = Conductor(settings, trace=trace, recording=recording)
        relays = [stack.enter_context(Relay(upstream, conductor)) for upstream in settings.upstreams]
        server = stack.enter_context(
            HubServer(listener, conductor, spin=settings.spin, remote=remote, relays=relays)
        )
        where = {"listen": str(settings.listen)} if settings.listen is not None else {}
        log.info("hub open", hub=str(settings.hub), simulator=str(settings.simulator), **where)
        async with trio.open_nursery() as outer:
            outer.start_soon(conductor.run)
            # First the environments, so that no step is under way when the session says goodbye.
            async with trio.open_nursery() as environments:
                environments.start_soon(server.serve)
                for relay in relays:
                    environments.start_soon(relay.run)
                async for number in signals:
                    log.info("leaving", signal=signal.Signals(number).name)
                    break
                outer.start_soon(_hurry, signals, relays)
                environments.cancel_scope.cancel()
            outer.cancel_scope.cancel()
        log.info("left", steps=conductor.steps, resets=conductor.resets)


async def _hurry(signals: AsyncIterator[int], relays: Sequence[Relay]) -> None:
    """Whoever asks a second time does not want to wait for upstreams."""
    async for _ in signals:
        for relay in relays:
            relay.link.hurry()
