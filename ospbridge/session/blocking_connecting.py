"""What comes before a session and behind it, for blocking callers: handlers that are found, freed, and seen off."""

from __future__ import annotations

import select
from contextlib import ExitStack
from itertools import chain, islice
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from ospbridge.interface import Endpoint
from ospbridge.session.arriving import hold_place, look_at
from ospbridge.session.datagrams import MOST_AT_ONCE
from ospbridge.session.link import Link
from ospbridge.session.reclaim import AT_ONCE, successors
from ospbridge.transport.udp import LARGEST_DATAGRAM, send_to

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.connecting import ConnectMachine
    from ospbridge.osp.profile import Profile
    from ospbridge.session.lease import LeaseFile
    from ospbridge.session.reclaim import Successor
    from ospbridge.session.seeing_off import SeeingOff

__all__ = ["find_handler", "reclaim", "see_off"]


def reclaim(places: Iterator[Successor]) -> list[str]:
    """Free the agents of the dead, through their old handlers; those that were confirmed."""
    freed: list[str] = []
    for first in places:
        freed += _reclaimed_together(chain((first,), islice(places, AT_ONCE - 1)))
    return freed


def _reclaimed_together(places: Iterable[Successor]) -> list[str]:
    freed: list[str] = []
    poll = select.poll()
    under_way: list[tuple[Successor, Link]] = []
    try:
        for dead in places:
            with ExitStack() as over:
                # Its handler may have said by now that it is.
                over.push(dead)
                link = Link(dead.sock, dead.machine, port=dead.port, spin=False, trace=None)
                link.begin(dead.goodbye())
                poll.register(link.fd, select.POLLIN)
                under_way.append((dead, link))
                over.pop_all()
        while under_way:
            for one in tuple(under_way):
                dead, link = one
                _take_in(link)
                if dead.machine.finished:
                    under_way.remove(one)
                    poll.unregister(link.fd)
                    with dead:
                        confirmed = dead.machine.result()
                        dead.heard = confirmed or link.gone
                        if dead.heard:
                            see_off(dead.others, dead.give_up(monotonic()))
                        freed.extend(dead.agents if confirmed else ())
            deadlines = [dead.machine.deadline for dead, _ in under_way]
            soonest = min((each for each in deadlines if each is not None), default=0.0)
            poll.poll(max(0, ceil((soonest - monotonic()) * 1000)))
    except BaseException as error:
        for dead, _ in under_way:
            dead.__exit__(type(error), error, None)
        raise
    return freed


def _take_in(link: Link) -> None:
    """What there is, or that nothing came in time."""
    machine = link.machine
    if machine.deadline is not None and machine.deadline <= monotonic():
        link.expire()
    elif not machine.finished:
        link.read()


def see_off(others: SeeingOff | None, give_up: float) -> None:
    """Our handler has left: say goodbye to those that other INITs are answered by, until ``give_up`` at most."""
    if others is None:
        return
    poll = select.poll()
    poll.register(others.sock, select.POLLIN)
    others.begin(monotonic(), give_up)
    while others.goes_on(now := monotonic()):
        poll.poll(max(0, ceil((others.machine.deadline - now) * 1000)))


def find_handler(
    sock: socket.socket,
    probe: socket.socket,
    machine: ConnectMachine,
    lease: LeaseFile,
    *,
    trace: TraceWriter | None,
    leases: Path | None,
    freed: list[str],
) -> tuple[Endpoint, Profile]:
    """Have INIT answered; the handler, and what it speaks. Raises what ``ConnectMachine`` does.

    ``freed`` gets the agents of the dead that were freed meanwhile.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    poll.register(probe, select.POLLIN)
    while True:
        for datagram, to in machine.outgoing:
            if trace is not None:
                trace.sent(datagram, to.port)
            send_to(sock, datagram, to)
        machine.outgoing.clear()
        if machine.adopted is not None:
            assert machine.profile is not None
            return machine.adopted, machine.profile
        poll.poll(max(0, ceil((machine.deadline - monotonic()) * 1000)))
        look_at(probe, machine)
        for _ in range(MOST_AT_ONCE):
            packet = _try_receive_from(sock)
            if packet is None:
                break
            data, source = packet
            if trace is not None:
                trace.received(data, source.port)
            machine.receive(data, source, monotonic())
        hold_place(lease, sock, machine)
        machine.handle_timer(monotonic())
        if machine.paused_until is not None:
            freed += reclaim(
                successors(machine.server, leases, machine.limits, no_later=machine.paused_until)
            )
            machine.paused_until = None


def _try_receive_from(sock: socket.socket) -> tuple[bytes, Endpoint] | None:
    try:
        data, address = sock.recvfrom(LARGEST_DATAGRAM)
    except BlockingIOError:
        return None
    return data, Endpoint(str(address[0]), int(address[1]))
