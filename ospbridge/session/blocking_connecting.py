"""What comes before a session and behind it, for blocking callers: handlers that are found, freed, and seen off."""

from __future__ import annotations

import select
from contextlib import ExitStack
from itertools import chain, islice
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final

from ospbridge.errors import OspBridgeError, SimulatorNotFound
from ospbridge.session.link import Link
from ospbridge.session.reclaim import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ospbridge.session.arriving import Arrival
    from ospbridge.session.reclaim import Successor
    from ospbridge.session.seeing_off import SeeingOff

__all__ = ["find_handler", "reclaim", "see_off"]

ENDED_WITHIN: Final = 0.2
"""Seconds within which it is noticed that the simulator has ended whose answer is awaited."""


def reclaim(places: Iterator[Successor]) -> list[str]:
    """Free the agents of the dead, through their old handlers; those that were confirmed."""
    freed: list[str] = []
    for first in places:
        freed += _reclaimed_together(chain((first,), islice(places, AT_ONCE - 1)))
    return freed


class _Goodbye:
    """One that is under way: the old handler's, and behind it those to whom its other INITs are answered by."""

    def __init__(self, dead: Successor, poll: select.poll) -> None:
        self.dead = dead
        self._poll = poll
        self._others: SeeingOff | None = None
        """Who is seen off now."""
        self._confirmed = False
        self._error: OspBridgeError | None = None
        self._link = Link(dead.sock, dead.machine, port=dead.port, spin=False, trace=None)
        self._link.begin(dead.goodbye())
        poll.register(self._link.fd, select.POLLIN)

    @property
    def deadline(self) -> float:
        """When it has its turn at the latest."""
        machine = self.dead.machine if self._others is None else self._others.machine
        return machine.deadline or 0.0

    def goes_on(self) -> bool:
        """Take in what there is, or that nothing came in time; False: it is over, and ``freed`` tells the rest."""
        if self._others is not None:
            return self._others.goes_on(monotonic())
        machine = self.dead.machine
        if machine.deadline is not None and machine.deadline <= monotonic():
            self._link.expire()
        elif not machine.finished:
            self._link.read()
        return not machine.finished or self._sees_off()

    def _sees_off(self) -> bool:
        """The handler has left, or fell silent; whether there are others to see off."""
        dead = self.dead
        self._poll.unregister(self._link.fd)
        try:
            self._confirmed = dead.machine.result()
        except OspBridgeError as error:
            self._error = error
            return False
        dead.heard = self._confirmed or self._link.gone
        if not dead.heard or dead.others is None:
            return False
        self._others = dead.others
        self._others.begin(monotonic(), dead.give_up(monotonic()))
        self._poll.register(self._others.sock, select.POLLIN)
        return self._others.goes_on(monotonic())

    def freed(self) -> tuple[str, ...]:
        """The agents that were given back. Raises the error that it ended with."""
        if self._error is not None:
            raise self._error
        if self._others is not None:
            self._poll.unregister(self._others.sock)
        return self.dead.agents if self._confirmed else ()


def _reclaimed_together(places: Iterable[Successor]) -> list[str]:
    freed: list[str] = []
    poll = select.poll()
    under_way: list[_Goodbye] = []
    try:
        for dead in places:
            with ExitStack() as over:
                # Its handler may have said by now that it is.
                over.push(dead)
                under_way.append(_Goodbye(dead, poll))
                over.pop_all()
        while under_way:
            for one in tuple(under_way):
                if not one.goes_on():
                    under_way.remove(one)
                    with one.dead:
                        freed += one.freed()
            soonest = min((one.deadline for one in under_way), default=0.0)
            poll.poll(max(0, ceil((soonest - monotonic()) * 1000)))
    except BaseException as error:
        for one in under_way:
            one.dead.__exit__(type(error), error, None)
        raise
    return freed


def see_off(others: SeeingOff | None, give_up: float) -> None:
    """Our handler has left: say goodbye to those that other INITs are answered by, until ``give_up`` at most."""
    if others is None:
        return
    poll = select.poll()
    poll.register(others.sock, select.POLLIN)
    others.begin(monotonic(), give_up)
    while others.goes_on(now := monotonic()):
        poll.poll(max(0, ceil((others.machine.deadline - now) * 1000)))


def find_handler(arrival: Arrival, freed: list[str], ended: Callable[[], bool] | None = None) -> None:
    """Have INIT answered. Raises what ``ConnectMachine`` does, and SimulatorNotFound where the simulator has ``ended``.

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
        wait = machine.deadline - monotonic()
        if ended is not None:
            wait = min(wait, ENDED_WITHIN)
            if ended():
                raise SimulatorNotFound(f"the simulator at {machine.server} ended before it answered")
        poll.poll(max(0, ceil(wait * 1000)))
