"""What comes before a session and behind it, for trio: handlers that are found, freed, and seen off."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.interface import Endpoint
from ospbridge.session.arriving import hold_place, look_at
from ospbridge.session.datagrams import MOST_AT_ONCE
from ospbridge.session.reclaim import AT_ONCE, successors
from ospbridge.session.trio_link import TrioLink
from ospbridge.transport.udp import LARGEST_DATAGRAM, send_to

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.connecting import ConnectMachine
    from ospbridge.osp.profile import Profile
    from ospbridge.session.lease import LeaseFile
    from ospbridge.session.reclaim import Successor
    from ospbridge.session.seeing_off import SeeingOff

__all__ = ["find_handler", "reclaim", "see_off"]

PROBE_EVERY: Final = 0.05
"""Seconds between looks at whether the main port is closed, while the first answer is awaited."""


async def reclaim(places: Iterator[Successor]) -> None:
    """Free the agents of the dead, through their old handlers."""
    for first in places:
        second = next(places, None)
        if second is None:
            await _reclaim(first)
            return
        async with trio.open_nursery() as nursery:
            for dead in chain((first, second), islice(places, AT_ONCE - 2)):
                nursery.start_soon(_reclaim, dead)


async def _reclaim(dead: Successor) -> None:
    with dead:
        link = TrioLink(dead.sock, dead.machine, port=dead.port, spin=False, trace=None)
        dead.heard = await link.run(dead.goodbye()) or link.gone
        if dead.heard:
            await see_off(dead.others, dead.give_up(trio.current_time()))


async def see_off(others: SeeingOff | None, give_up: float) -> None:
    """Say END to each that answers, until ``give_up`` at the latest."""
    if others is None:
        return
    others.begin(trio.current_time(), give_up)
    while others.goes_on(trio.current_time()):
        with trio.move_on_at(others.machine.deadline):
            await trio.lowlevel.wait_readable(others.sock)


async def find_handler(
    sock: socket.socket,
    probe: socket.socket,
    machine: ConnectMachine,
    lease: LeaseFile,
    *,
    trace: TraceWriter | None,
    tally: Tally | None,
    leases: Path | None,
) -> tuple[Endpoint, Profile]:
    """Have INIT answered; the handler, and what it speaks. Raises what ``ConnectMachine`` does."""
    while True:
        for datagram, to in machine.outgoing:
            if trace is not None:
                trace.sent(datagram, to.port)
            if tally is not None:
                tally.sent[datagram[0]] += 1
            send_to(sock, datagram, to)
        machine.outgoing.clear()
        if machine.adopted is not None:
            assert machine.profile is not None
            return machine.adopted, machine.profile
        with trio.move_on_at(min(machine.deadline, trio.current_time() + PROBE_EVERY)):
            await trio.lowlevel.wait_readable(sock)
        look_at(probe, machine)
        for _ in range(MOST_AT_ONCE):
            try:
                data, address = sock.recvfrom(LARGEST_DATAGRAM)
            except BlockingIOError:
                break
            if trace is not None:
                trace.received(data, int(address[1]))
            if tally is not None:
                tally.received[data[0] if data else 0] += 1
            machine.receive(data, Endpoint(str(address[0]), int(address[1])), trio.current_time())
        hold_place(lease, sock, machine)
        machine.handle_timer(trio.current_time())
        if machine.paused_until is not None:
            await reclaim(successors(machine.server, leases, machine.limits, no_later=machine.paused_until))
            machine.paused_until = None
