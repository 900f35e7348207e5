"""Closing several sessions side by side, from one thread: within the limit of one, however many there are.

Each sees off the handlers that its other INITs are answered by as soon as its own has left, while the others still wait
for theirs: one that is silent to the end takes nobody's time.
"""

from __future__ import annotations

import select
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from ospbridge.errors import SessionClosed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.seeing_off import SeeingOff

__all__ = ["leave_together"]


def leave_together(sessions: Iterable[BlockingSession]) -> None:
    """Close sessions, none of which is in the middle of an exchange. They are closed also where this is interrupted."""
    now = monotonic()
    poll = select.poll()
    leaving = [_Leaving(session, poll, now) for session in sessions]
    try:
        for one in leaving:
            one.begin()
        under_way = leaving
        while under_way := [one for one in under_way if one.goes_on()]:
            soonest = min(one.deadline for one in under_way)
            poll.poll(max(0, ceil((soonest - monotonic()) * 1000)))
    finally:
        for one in leaving:
            one.end()


class _Leaving:
    """One session's way out: goodbye to its handler first, then to those that its other INITs are answered by."""

    def __init__(self, session: BlockingSession, poll: select.poll, now: float) -> None:
        self.deadline = now
        self._session = session
        self._poll = poll
        self._give_up = now + session.machine.limits.close
        self._awaiting = False
        """Its handler has not let go yet."""
        self._confirmed = False
        self._others: SeeingOff | None = None

    def begin(self) -> None:
        """Say goodbye, where somebody is left to say it to."""
        session = self._session
        goodbye = session.goodbye()
        if goodbye is not None:
            # Else it is not confirmed, and the others leave all the same.
            with suppress(Exception):
                session.link.begin(goodbye)
                self._poll.register(session.link.fd, select.POLLIN)
                self._awaiting = True
        if not self._awaiting:
            self._see_off()

    def goes_on(self) -> bool:
        """Take in what there is; True: to be called again at ``deadline``, or when more has come."""
        if self._awaiting and not self._answered():
            return True
        others = self._others
        if others is not None and others.goes_on(monotonic()):
            self.deadline = others.machine.deadline
            return True
        self.end()
        return False

    def _answered(self) -> bool:
        link = self._session.link
        machine = link.machine
        if not machine.finished:
            if machine.deadline is not None and machine.deadline <= monotonic():
                link.expire()
            else:
                link.read()
        if not machine.finished:
            assert machine.deadline is not None
            self.deadline = machine.deadline
            return False
        with suppress(Exception):
            self._confirmed = machine.result() is True
        self._awaiting = False
        self._poll.unregister(link.fd)
        self._see_off()
        return True

    def _see_off(self) -> None:
        others = self._others = self._session.surplus(confirmed=self._confirmed)
        if others is not None:
            others.begin(monotonic(), self._give_up)
            self._poll.register(others.sock, select.POLLIN)

    def end(self) -> None:
        """Nothing more is said."""
        session = self._session
        if session.closed:
            return
        session.link.machine.interrupt(SessionClosed("the session was closed"))
        if self._others is not None:
            self._poll.unregister(self._others.sock)
        session.left(confirmed=self._confirmed)
