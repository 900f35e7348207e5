"""Freeing the agents of a dead session, and its place among the server's clients, through its old handler.

The handler is connected to the dead client's address, so its successor binds that very port and says goodbye in its
name. A real handler in mid-step waits for an acknowledgement; one datagram frees it.

It does so behind its own INIT, and before it where that meets silence: a server that takes one client only answers
nobody else until that one has left. Of several dead ones the goodbyes are said side by side, so that handlers that are
silent take the time of one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import OspBridgeError, QueryTimeout, SessionEvicted, SessionLost
from ospbridge.interface import Endpoint
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.machine import ClientMachine, Exchange
from ospbridge.osp.messages import StepCompletedAck
from ospbridge.osp.profile import PROFILES
from ospbridge.session.lease import stale_leases
from ospbridge.session.lost_agents import found_dead
from ospbridge.session.seeing_off import SeeingOff
from ospbridge.session.settling import GOODBYES
from ospbridge.transport.addresses import resolve
from ospbridge.transport.udp import open_udp

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.osp.timing import Limits
    from ospbridge.session.lease import Lease, LeaseFile

__all__ = ["AT_ONCE", "FREED_WITHIN", "LOOKED_EVERY", "Successor", "in_place_of", "successors"]

FREED_WITHIN: Final = 3.0
"""Seconds that a guardian may take to say goodbye for a session whose process is gone, its start included."""
LOOKED_EVERY: Final = 0.02
AT_ONCE: Final = 32
"""Goodbyes that are said side by side, each of which takes a descriptor or two."""


class Successor:
    """A dead client's place: a socket that its old handler listens to, and a machine for it.

    A context, in which ``goodbye`` is to be run and ``heard`` to be set. Behind it the lease is gone, or is left to the
    next successor: where nobody was heard, and where the caller was interrupted. ``silence_tells``: a silence is the
    handler's own, and its lease is given up after some.
    """

    def __init__(
        self,
        sock: socket.socket,
        machine: ClientMachine,
        lease: Lease,
        file: LeaseFile,
        *,
        silence_tells: bool = True,
    ) -> None:
        self.sock = sock
        self.machine = machine
        self.port = lease.handler_port
        self.agents = tuple(lease.agents)
        # From here on, since the server may read on as soon as it hears the goodbye.
        self.others = SeeingOff.beside(sock, lease.endpoint, machine.profile, lease.owed)
        """Handlers that the dead one's other INITs are answered by."""
        self.heard = True
        """The handler said something, or is gone for sure."""
        self._lease = lease
        self._file = file
        self._silence_tells = silence_tells

    def goodbye(self) -> Exchange[bool]:
        """Free the handler, give back its agents, leave. True where all was confirmed."""
        m, lease = self.machine, self._lease
        m.leaving = True
        m.send(StepCompletedAck(0))
        try:
            for agent_id in lease.agents.values():
                yield from roster.deregister(m, agent_id, limit=m.limits.close)
            if not lease.events or m.profile.end_after_events_is_safe:
                return (yield from asking.end(m))
        except QueryTimeout:
            return False
        return True

    def give_up(self, now: float) -> float:
        """When to wait no longer for ``others``."""
        return min(now + self.machine.limits.close, self.machine.no_later)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.sock.close()
        if self.others is not None:
            self.others.close()
        GOODBYES.note(self._lease.endpoint)
        told = error is None or isinstance(error, OspBridgeError)
        if isinstance(error, SessionLost) and not isinstance(error, SessionEvicted):
            found_dead(self._lease.endpoint, self._lease.agents)
        if told and (self.heard or self._silence_tells):
            self._file.tried(self._lease, heard=self.heard)
        else:
            # Whoever goes on without it must not keep it locked: its agents would stay taken for as long.
            self._file.abandon()
        return told


def successors(
    server: Endpoint, directory: Path | None, limits: Limits, *, no_later: float | None = None
) -> Iterator[Successor]:
    """Of our own sessions with ``server`` that died, one after the other.

    ``no_later``: when all of them must have had their say, where the server has answered nothing so far. No lease is
    given up then for what did not work: it may be the server that is away, or the network.
    """
    for lease, file in stale_leases(server, directory):
        try:
            place = in_place_of(lease, limits)
        except BaseException:
            file.abandon()
            raise
        if place is not None:
            dead = Successor(*place, lease, file, silence_tells=no_later is None)
            if no_later is not None:
                dead.machine.no_later = no_later
            yield dead
        elif no_later is None:
            # Its host may be gone for good. Or its port is somebody else's just now, or still that of the dead: the
            # system closes what a killed process had open in an order of its own, a lock perhaps before a socket.
            file.tried(lease, heard=False)
        else:
            file.abandon()


def in_place_of(lease: Lease, limits: Limits) -> tuple[socket.socket, ClientMachine] | None:
    """A socket in the dead client's place and a machine for it; None where its port is taken or its host is gone."""
    profile = PROFILES.get(lease.profile)
    if profile is None:
        return None
    if lease.marked:
        profile = replace(profile, end_marker=True)
    family, handler = resolve(Endpoint(lease.server, lease.handler_port))
    try:
        sock = open_udp(family, local_port=lease.local_port, local_host=lease.local_host)
    except OSError:
        return None
    try:
        sock.connect((handler.host, handler.port))
    except OSError:
        sock.close()
        return None
    return sock, ClientMachine(
        profile, limits=limits, jitter=random.random, peer=f"the old handler {handler}"
    )
