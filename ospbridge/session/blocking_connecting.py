"""What comes before a session and behind it, for blocking callers: handlers that are found, freed, and seen off."""

from __future__ import annotations

import select
from contextlib import ExitStack
from itertools import chain, islice
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from ospbridge.session.link import Link
from ospbridge.session.reclaim import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ospbridge.session.arriving import Arrival
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


def find_handler(arrival: Arrival, freed: list[str]) -> None:
    """Have INIT answered. Raises what ``ConnectMachine`` does.

    ``freed`` gets the agents of the dead that were freed meanwhile.
    """
    machine = arrival.machine
    poll = select.poll()
    poll.register(arrival.sock, select.POLLIN)
    poll.register(arrival.probe, select.POLLIN)
    while arrival.goes_on(monotonic()):
        if machine.paused_until is not None:
            freed += reclaim(arrival.successors())
            machine.paused_until = None
        poll.poll(max(0, ceil((machine.deadline - monotonic()) * 1000)))
