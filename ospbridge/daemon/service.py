"""The daemon's life: open the hub, join, serve, read the configuration again, and leave in order when told to."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub.listener import HubSocket
from ospbridge.daemon.hub.server import HubServer, TlsListener
from ospbridge.daemon.launching import SimulatorLauncher
from ospbridge.daemon.notifying import Notifier, Overlook, reloading, supervise
from ospbridge.daemon.recording import Recording
from ospbridge.daemon.relay.link import Mode
from ospbridge.daemon.relay.relay import Relay
from ospbridge.errors import OspBridgeError, SessionLost
from ospbridge.observe import logs
from ospbridge.observe.trace import TraceWriter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from ospbridge.daemon.relay.link import Upstream
    from ospbridge.daemon.settings import Feeding, Settings


__all__ = ["Companion", "serve"]

Companion: TypeAlias = "Callable[[Overlook], Awaitable[None]]"
"""What runs beside the hub until the daemon leaves. Whatever goes wrong in it, it must not raise."""
log = logs.get(__name__)
LEAVE_WITHIN: Final = 2.8
"""Seconds from a signal to the end."""
WRITE_WITHIN: Final = 0.5
"""Seconds that are left of them at least for writing what is to be recorded or spooled."""
LOST_PAUSE: Final = 60.0
"""Seconds until one of several simulators that was lost too often is joined again: it has earned one rebuild then."""


async def serve(
    simulators: Sequence[Settings],
    feedings: Sequence[Feeding],
    signals: AsyncIterator[int],
    *,
    companions: Sequence[Companion] = (),
    reload: Callable[[], None] | None = None,
) -> None:
    """Run until ``signals`` has SIGTERM or SIGINT. Raises what cannot be mended: ConfigurationError and others.

    Of several simulators, one that is given up is only logged, as long as others are left; one that was lost too often
    is joined again after a while. ``companions`` run for as long as environments are served. SIGHUP has certificates
    read again and calls ``reload``, whose OspBridgeError is only logged; where that is None it ends the daemon, as it
    does for a terminal that is closed.
    """
    if len(simulators) > 1:
        # Whoever spins for one simulator keeps all others waiting, since they share the thread.
        simulators = [replace(settings, spin=False) for settings in simulators]
    with ExitStack() as stack:
        notifier = Notifier()
        stack.callback(notifier.close)
        launched = sum(settings.launch is not None for settings in simulators)
        doors = [_Door.opened(settings, stack, launched=launched) for settings in simulators]
        relays = []
        for feeding in feedings:
            fed = [door for door in doors if door.feeds(feeding)]
            relay = stack.enter_context(Relay(feeding.upstream, [door.conductor for door in fed]))
            relays.append(relay)
            for door in fed:
                door.server.relays.append(relay)
        for door in doors:
            _tell_shared(door, [feeding.upstream for feeding in feedings if door.feeds(feeding)])
        overlook = Overlook([door.conductor for door in doors], [door.server for door in doors], relays)
        end = await _run(doors, overlook, notifier, signals, companions=companions, reload=reload)
        seconds = max(end - trio.current_time(), WRITE_WITHIN)
        for relay in relays:
            relay.drain_within(seconds)
        for door in doors:
            if door.recording is not None:
                door.recording.drain = seconds
            with door.conductor.logging():
                log.info("left", steps=door.conductor.steps, resets=door.conductor.resets)


async def _run(
    doors: Sequence[_Door],
    overlook: Overlook,
    notifier: Notifier,
    signals: AsyncIterator[int],
    *,
    companions: Sequence[Companion],
    reload: Callable[[], None] | None,
) -> float:
    """Until a signal says to leave. Returns when all must be over."""
    async with trio.open_nursery() as outer:
        outer.start_soon(supervise, notifier, overlook)
        async with trio.open_nursery() as sessions:
            left = list(overlook.conductors)
            for conductor in overlook.conductors:
                sessions.start_soon(_keep, conductor, left)
                sessions.start_soon(conductor.look_after_simulator)
            # First the environments, so that no step is under way when the session says goodbye.
            async with trio.open_nursery() as environments:
                for door in doors:
                    environments.start_soon(door.attend)
                for relay in overlook.relays:
                    environments.start_soon(relay.run)
                for companion in companions:
                    environments.start_soon(companion, overlook)
                notifier.tell(READY=1, STATUS=overlook.summary())
                async for number in signals:
                    if number == signal.SIGHUP and reload is not None:
                        reloading(notifier, partial(_read_again, doors, reload))
                        continue
                    log.info("leaving", signal=signal.Signals(number).name)
                    break
                notifier.tell(STOPPING=1, STATUS="leaving the simulator")
                end = trio.current_time() + LEAVE_WITHIN
                drivers: list[HubServer | Relay] = [*(door.server for door in doors), *overlook.relays]
                sessions.start_soon(_leave_simulators, drivers, sessions.cancel_scope)
                environments.cancel_scope.cancel()
        outer.cancel_scope.cancel()
    return end


def _read_again(doors: Sequence[_Door], reload: Callable[[], None]) -> None:
    """Whatever is wrong, the daemon goes on with what it had."""
    for door in doors:
        if door.remote is not None:
            try:
                door.remote.read_again()
            except OspBridgeError as error:
                log.warning(
                    "the old certificates stay",
                    **door.conductor.settings.whose,
                    reason=error.message,
                    hint=error.hint,
                )
    try:
        reload()
    except OspBridgeError as error:
        log.warning("the old configuration stays", reason=error.message, hint=error.hint)


@dataclass(frozen=True, slots=True, eq=False)
class _Door:
    """One simulator's conductor, and where environments come in."""

    conductor: Conductor
    server: HubServer
    remote: TlsListener | None
    recording: Recording | None

    @classmethod
    def opened(cls, settings: Settings, stack: ExitStack, *, launched: int) -> _Door:
        """Nobody is let in yet; ``stack`` closes it. ``launched``: how many simulators the daemon starts."""
        launcher = None
        if settings.launch is not None:
            launcher = SimulatorLauncher(settings, of=launched)
            stack.callback(launcher.close)
            settings = replace(settings, simulator=launcher.address)
        recording = None
        if settings.record is not None:
            recording = stack.enter_context(Recording(settings.record))
        listener = HubSocket(settings.hub)
        stack.callback(listener.close)
        remote = None
        if settings.listen is not None:
            remote = TlsListener(settings.listen)
            stack.callback(remote.close)
        trace = stack.enter_context(TraceWriter(settings.trace)) if settings.trace is not None else None
        where = {"listen": str(settings.listen)} if settings.listen is not None else {}
        log.info("hub open", hub=str(settings.hub), **settings.whose, **where)
        conductor = Conductor(settings, trace=trace, recording=recording, launcher=launcher)
        server = HubServer(listener, conductor, spin=settings.spin, remote=remote)
        stack.callback(server.close)
        return cls(conductor, server, remote, recording)

    def feeds(self, feeding: Feeding) -> bool:
        return not feeding.simulators or self.conductor.settings.name in feeding.simulators

    async def attend(self) -> None:
        with self.conductor.logging():
            await self.server.serve()


def _tell_shared(door: _Door, upstreams: Sequence[Upstream]) -> None:
    """That drivers of one world wait for each other's servers."""
    driving = [str(upstream.address) for upstream in upstreams if upstream.mode is Mode.DRIVE]
    if len(driving) > 1:
        log.warning(
            "several upstreams drive agents of one simulator",
            **door.conductor.settings.whose,
            upstreams=driving,
            hint="its agents step together, so each waits while another's weights are learned; and servers that wait "
            "for each other's batches, as the env runners of one RLlib do, wait until --rllink-timeout: give each a "
            "simulator of its own, or have one drive all agents",
        )


async def _keep(conductor: Conductor, left: list[Conductor]) -> None:
    """Keep the session of one of those that are ``left``; raises what it ends with when it is the last one.

    One that was lost too often is tried again, as a daemon that ends for it would be started again; what it ends with
    otherwise was asked for, or is a mistake.
    """
    with conductor.logging():
        while True:
            try:
                await conductor.run()
            except OspBridgeError as error:
                left.remove(conductor)
                if not left:
                    raise
                if not isinstance(error, SessionLost):
                    log.warning(
                        "a simulator is given up, the others go on", reason=error.message, hint=error.hint
                    )
                    return
                log.warning(
                    "a simulator is left alone for a while, the others go on",
                    reason=error.message,
                    again_after=LOST_PAUSE,
                )
            conductor.supervisor.tried_again_after(LOST_PAUSE)
            await trio.sleep(LOST_PAUSE)
            left.append(conductor)


async def _leave_simulators(drivers: Sequence[HubServer | Relay], sessions: trio.CancelScope) -> None:
    """As soon as nobody drives their agents; an upstream may take longer to be left."""
    for driver in drivers:
        await driver.at_rest.wait()
    sessions.cancel()
