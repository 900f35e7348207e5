"""What comes before a session and behind it, for trio: handlers that are found, freed, and seen off."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.session.reclaim import AT_ONCE
from ospbridge.session.trio_link import TrioLink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.session.arriving import Arrival
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


async def find_handler(arrival: Arrival) -> None:
    """Have INIT answered. Raises what ``ConnectMachine`` does."""
    machine = arrival.machine
    while arrival.goes_on(trio.current_time()):
        if machine.paused_until is not None:
            await reclaim(arrival.successors())
            machine.paused_until = None
        with trio.move_on_at(min(machine.deadline, trio.current_time() + PROBE_EVERY)):
            await trio.lowlevel.wait_readable(arrival.sock)
