"""Connecting: from the first INIT to the handler that answers, and the dead sessions of ours whose agents are freed.

All of it blocks; trio's driver runs it in a thread. ``check`` is called all the while, and raises to give up. From the
answer on a handler waits for us: whoever dies leaves a lease for it, and whoever gives up says goodbye to it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from ospbridge.errors import SessionEvicted, SessionLost, UsageError
from ospbridge.interface import Endpoint
from ospbridge.osp import agents as roster
from ospbridge.osp.client import ClientMachine
from ospbridge.osp.connect import ConnectMachine
from ospbridge.osp.disconnect import leave, reset_communication
from ospbridge.osp.messages import StepCompletedAck
from ospbridge.osp.profile import PROFILES, profile_named
from ospbridge.osp.timing import RESTART_SETTLES, Limits
from ospbridge.session.channel import Channel, Goodbye, OpenPort, say_goodbyes, surplus_port, wait_readable
from ospbridge.session.lease import (
    SessionLease,
    being_freed,
    forget_all,
    left_behind,
    locked_by_the_dead,
    note_loss,
    stale_leases,
    told_of_leases,
)
from ospbridge.transport.addresses import parse_endpoint, resolve
from ospbridge.transport.admission import closed_on_error
from ospbridge.transport.udp import LARGEST_DATAGRAM, closed_port_probe, connect_to, open_udp

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import Exchange
    from ospbridge.osp.profile import Profile
    from ospbridge.session.lease import LeaseFile

__all__ = [
    "GOODBYES",
    "RESTARTS",
    "Connection",
    "find_handler",
    "free_dead_sessions",
    "join",
    "machine_to_leave",
]

CHECKED_EVERY: Final = 0.05
"""Seconds between calls of ``check`` while an answer is awaited."""
FREED_WITHIN: Final = 3.0
"""Seconds that a guardian may take to say goodbye for a session whose process is gone, its start included."""
LOOKED_EVERY: Final = 0.02
AT_ONCE: Final = 32
"""Goodbyes that are said side by side, each of which takes a descriptor or two."""


class LastTime:
    """When something was done to each simulator last, by this process.

    A real server dies of RESET_COMMUNICATION right behind END, and loses or dies of INIT right behind a restart.
    """

    def __init__(self) -> None:
        self._done: dict[Endpoint, float] = {}

    def note(self, server: Endpoint) -> None:
        """It was just done to this one."""
        self._done[server] = monotonic()

    def left(self, server: Endpoint) -> float:
        """Seconds until that is settled."""
        at = self._done.get(server)
        return 0.0 if at is None else max(0.0, at + RESTART_SETTLES - monotonic())


GOODBYES: Final = LastTime()
"""END was said to a handler: until it is settled, the communication must not be restarted."""
RESTARTS: Final = LastTime()
"""The communication was restarted: until it is settled, nobody must join."""


@dataclass(slots=True, eq=False)
class Connection:
    """A handler that has answered, and a channel to it."""

    channel: Channel
    server: Endpoint
    handler: Endpoint
    lease: SessionLease
    greeting: bytes = b""
    """The handler's answer to the INIT."""
    freed: tuple[str, ...] = ()
    """Agents of dead sessions of ours that were given back on the way."""
    remark: str = ""
    """What users are to be told of it."""

    def close(self, exchange: Exchange[bool]) -> None:
        """Say goodbye, by an exchange of its channel."""
        goodbye = Goodbye(self.channel, exchange)
        try:
            say_goodbyes([goodbye])
            if goodbye.confirmed:
                self.lease.end()
        finally:
            GOODBYES.note(self.server)
            self.drop()

    def drop(self) -> None:
        """Let go of all, without a word."""
        if self.channel.surplus is not None:
            # Whoever finds the lease unlocked takes it that its port can be had.
            self.channel.surplus.sock.close()
        self.lease.close()


def join(
    simulator: str | Endpoint,
    profile: str | Profile | None,
    *,
    limits: Limits | None,
    reclaim_stale: bool,
    pauses: bool = False,
    trace: TraceWriter | None = None,
    tally: Tally | None = None,
    leases: str | os.PathLike[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Connection:
    """A handler of the simulator at ``HOST:PORT``; ``reclaim_stale`` first frees the agents of our dead sessions there.

    ``pauses`` does so only while nobody answers. Raises what ``find_handler`` does, ConfigurationError for a wrong
    address or profile, UsageError for what are no limits or no trace, and QueryTimeout.
    """
    limits = Limits() if limits is None else limits
    if not isinstance(limits, Limits):
        raise UsageError(
            f"limits must be a Limits, got {limits!r}",
            hint="for instance ospbridge.osp.timing.Limits(step=5.0)",
        )
    if isinstance(trace, str | os.PathLike):
        raise UsageError(
            f"trace must be a TraceWriter, got {trace!r}",
            hint="open one with ospbridge.observe.trace.TraceWriter(FILE), and close it after the session",
        )
    leases = None if leases is None else Path(leases)
    server = resolve(parse_endpoint(str(simulator) if isinstance(simulator, Endpoint) else simulator))
    found = partial(
        find_handler,
        server,
        profile,
        limits=limits,
        trace=trace,
        tally=tally,
        leases=leases,
        check=check,
    )
    pauses = pauses or reclaim_stale
    with told_of_leases(server, leases, said_goodbye=pauses):
        connection = found(pauses=pauses)
    if not reclaim_stale:
        return connection
    machine = connection.channel.machine
    try:
        freed = (*connection.freed, *free_dead_sessions(server, leases, limits, check))
        locked = _only_freed_by_a_restart(connection)
    except BaseException as error:
        machine.interrupt(error)
        connection.close(leave(machine, ()))
        raise
    if locked:
        sleep(GOODBYES.left(server))
        connection.close(restart(machine, server, leases, connection.lease))
        RESTARTS.note(server)
        connection = found()
        connection.remark = (
            f"the communication of {server} was restarted, which alone freed {', '.join(dict.fromkeys(locked))} of "
            "a killed session of ours"
        )
    connection.freed = (*freed, *locked)
    return connection


def _only_freed_by_a_restart(connection: Connection) -> list[str]:
    """Taken agents that only a restart of the communication frees, where that disturbs nobody else."""
    server, leases, channel = connection.server, connection.lease.directory, connection.channel
    machine = channel.machine
    if not machine.profile.deaf_after_closed_port or not left_behind(server, leases):
        return []
    channel.begin(roster.overview(machine), monotonic())
    while not channel.turn(monotonic()):
        wait_readable([channel.sock], machine.deadline or 0.0)
    return locked_by_the_dead(machine.result(), server, leases, connection.lease.path)


def restart(
    m: ClientMachine, server: Endpoint, leases: Path | None, lease: SessionLease | None
) -> Exchange[bool]:
    """Disconnect every client of the simulator; neither this session nor a dead one has anything there any more."""
    try:
        confirmed = yield from reset_communication(m)
        if confirmed:
            forget_all(server, leases)
        return confirmed
    finally:
        if lease is not None:
            lease.end()


def find_handler(
    server: Endpoint,
    profile: str | Profile | None,
    *,
    limits: Limits,
    pauses: bool = False,
    trace: TraceWriter | None = None,
    tally: Tally | None = None,
    leases: Path | None = None,
    check: Callable[[], None] = lambda: None,
) -> Connection:
    """Have INIT answered by the server at a numeric address.

    Raises SimulatorNotFound, SimulatorSilent, VersionRefused, and what ``check`` does: then all that has answered gets
    its END. Nobody waits to hear that confirmed, so the lease stays.
    """
    wanted = profile_named(profile) if isinstance(profile, str) else profile
    while (left := RESTARTS.left(server)) > 0.0:
        check()
        sleep(min(left, CHECKED_EVERY))
    machine = ConnectMachine(server, wanted, limits=limits, now=monotonic(), pauses=pauses)
    port = OpenPort(open_udp(server.host), machine, trace=trace, tally=tally)
    lease = SessionLease(port.sock, server, leases)
    freed: list[str] = []
    try:
        with closed_port_probe(server) as probe:
            port.say()
            while not _turn(port, probe, lease):
                if machine.paused_until is not None:
                    freed += reclaim(server, leases, limits, no_later=machine.paused_until)
                    machine.paused_until = None
                check()
                wait_readable((port.sock, probe), min(machine.deadline, monotonic() + CHECKED_EVERY))
        assert machine.answered is not None
        handler, spoken = machine.answered
        if machine.surplus:
            GOODBYES.note(server)
        early = connect_to(port.sock, handler)
        lease.hold(handler, spoken, owed=machine.owed)
    except BaseException:
        machine.turn_back()
        port.say()
        lease.close()
        raise
    channel = Channel(
        port.sock,
        ClientMachine(spoken, limits=limits, peer=str(server)),
        port=handler.port,
        surplus=surplus_port(port.sock, server, spoken, machine.owed, trace),
        trace=trace,
        tally=tally,
    )
    for data in early:
        channel.take(data, monotonic())
    return Connection(channel, server, handler, lease, machine.greeting, tuple(freed))


def _turn(port: OpenPort[ConnectMachine], probe: socket.socket, lease: SessionLease) -> bool:
    """Take in what there is; True: a handler is adopted. A lease is kept of one that has answered before that."""
    machine, now = port.machine, monotonic()
    problem: OSError | None = None
    try:
        probe.recv(LARGEST_DATAGRAM)
    except BlockingIOError:
        pass
    except OSError as error:
        problem = error
    if isinstance(problem, ConnectionRefusedError):
        machine.handle_refused()
    elif problem is not None:
        machine.handle_unreachable(str(problem.strerror))
    port.hear(now)
    if machine.answered is not None and machine.answered[0] != lease.handler:
        lease.hold(*machine.answered, owed=machine.owed)
    machine.handle_timer(now)
    port.say()
    return machine.finished


# --- dead sessions of ours ------------------------------------------------------------------------------------------


def machine_to_leave(
    profile: Profile, limits: Limits, agents: Iterable[int], *, peer: str, events: bool
) -> tuple[ClientMachine, Exchange[bool]]:
    """A machine for a handler with which something is under way that nobody knows of, and its goodbye there.

    A real handler in mid-step waits for an acknowledgement; one datagram frees it.
    """
    m = ClientMachine(profile, limits=limits, peer=peer)
    m.events_used = events
    m.send(StepCompletedAck(0))
    return m, leave(m, tuple(agents))


class DeadSession:
    """A dead client's place: a socket that its old handler listens to, over which ``goodbye`` is said.

    Its handler is connected to the dead client's address, so its successor binds that very port. ``close`` must follow.
    """

    def __init__(self, file: LeaseFile, limits: Limits) -> None:
        self._file, lease = file, file.lease
        profile = replace(
            PROFILES[lease.profile], end_marker=lease.marked or PROFILES[lease.profile].end_marker
        )
        handler = resolve(Endpoint(lease.server, lease.handler_port))
        with closed_on_error(
            open_udp(handler.host, local_port=lease.local_port, local_host=lease.local_host)
        ) as sock:
            sock.connect((handler.host, handler.port))
        machine, exchange = machine_to_leave(
            profile, limits, lease.agents.values(), peer=f"the old handler {handler}", events=lease.events
        )
        # From here on, since the server may read on as soon as it hears the goodbye.
        surplus = surplus_port(sock, lease.endpoint, profile, lease.owed)
        self._channel = Channel(sock, machine, port=handler.port, surplus=surplus)
        self.goodbye = Goodbye(self._channel, exchange)

    def close(self, *, silence_counts: bool) -> tuple[str, ...]:
        """Behind the goodbye. The lease is gone, or is left to the next one. Returns the agents that were freed."""
        goodbye, channel, lease = self.goodbye, self._channel, self._file.lease
        channel.sock.close()
        if channel.surplus is not None:
            channel.surplus.sock.close()
        GOODBYES.note(lease.endpoint)
        if isinstance(goodbye.error, SessionLost) and not isinstance(goodbye.error, SessionEvicted):
            note_loss(lease.endpoint, lease.agents, "was found dead")
        heard = goodbye.confirmed or goodbye.error is not None or channel.gone
        if heard or silence_counts:
            self._file.tried(heard=heard)
        else:
            # Whoever goes on without it must not keep it locked: its agents would stay taken for as long.
            self._file.abandon()
        return tuple(lease.agents) if goodbye.confirmed else ()


def _dead_sessions(
    server: Endpoint, directory: Path | None, limits: Limits, no_later: float | None
) -> Iterator[DeadSession]:
    for file in stale_leases(server, directory):
        if no_later is not None:
            limits = replace(limits, close=max(min(limits.close, no_later - monotonic()), 0.01))
        try:
            yield DeadSession(file, limits)
        except BaseException as error:
            # Its host may be gone for good. Or its port is somebody else's just now, or still that of the dead: the
            # system closes what a killed process had open in an order of its own, a lock perhaps before a socket.
            lost = isinstance(error, KeyError | OSError)
            if lost and no_later is None:
                file.tried(heard=False)
            else:
                file.abandon()
            if not lost:
                raise


def reclaim(
    server: Endpoint, directory: Path | None, limits: Limits, *, no_later: float | None = None
) -> list[str]:
    """Free the agents of our dead sessions with ``server``, and their places there. Those whose goodbye was confirmed.

    ``no_later``: when all of them must have had their say, where the server has answered nothing so far. No lease is
    given up then for what did not work: it may be the server that is away, or the network.
    """
    freed: list[str] = []
    places = _dead_sessions(server, directory, limits, no_later)
    while batch := list(islice(places, AT_ONCE)):
        silence_counts = False
        try:
            say_goodbyes([dead.goodbye for dead in batch])
            silence_counts = no_later is None
        finally:
            for dead in batch:
                freed += dead.close(silence_counts=silence_counts)
    return freed


def free_dead_sessions(
    server: Endpoint, directory: Path | None, limits: Limits, check: Callable[[], None] = lambda: None
) -> list[str]:
    """``reclaim`` behind guardians that say goodbye just now."""
    give_up = monotonic() + FREED_WITHIN
    while being_freed(server, directory) and monotonic() < give_up:
        check()
        sleep(LOOKED_EVERY)
    return reclaim(server, directory, limits)
