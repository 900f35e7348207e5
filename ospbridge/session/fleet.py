"""Steps and exchanges of several sessions side by side, from one thread.

All requests go out before any answer is read; one poll watches all sockets. The machines know nothing of each other:
each keeps its own deadlines, and an error stays with the session whose step it ended.
"""

from __future__ import annotations

import select
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import LocalProtocolError, SessionClosed
from ospbridge.session.blocking import poll_until
from ospbridge.session.channel import say_goodbyes
from ospbridge.session.one_thread import OneThread
from ospbridge.transport.addresses import is_loopback
from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.osp.client import Exchange
    from ospbridge.session.blocking import BlockingSession

__all__ = ["SessionFleet", "cores_wanted"]

SPINS: Final = 200
"""Looks at the sockets before it sleeps, at most: some 100 us."""


class SessionFleet:
    """Runs many sessions. ``cores``: see ``cores_wanted``; spinning is left out where there are fewer."""

    def __init__(self, *, spin: bool = True, cores: int = 2) -> None:
        self.in_use = OneThread("a fleet of simulators")
        self._spinning = Spinning(SPINS, enabled=spin, cores=cores)
        self._under_way: list[BlockingSession] = []

    def run(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | None]]) -> list[Any]:
        """Each exchange's result, or the exception that it ended with, in the order of ``work``; see ``begin``."""
        self.begin(work)
        return self.finish()

    def begin(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | None]]) -> None:
        """Start all, each of a session of its own, and send what they say first. What was under way is given up.

        ``finish`` must follow. None stands for a step with the inputs that were taken over.
        """
        with self.in_use:
            self.cancel(LocalProtocolError("a step was given up before its end"))
            try:
                for session, exchange in work:
                    # Before it begins: what interrupts its beginning is to end it too.
                    self._under_way.append(session)
                    if session.in_use.closing:
                        continue
                    if exchange is None:
                        session.begin_step(monotonic())
                    else:
                        session.begin(exchange, monotonic())
            except BaseException as error:
                self.cancel(error)
                raise

    def finish(self) -> list[Any]:
        """Wait until all have ended. Each one's result, or the exception that it ended with."""
        with self.in_use:
            sessions = self._under_way
            try:
                self._complete(sessions)
            except BaseException as error:
                self.cancel(error)
                raise
            self._under_way = []
            return [_outcome(session) for session in sessions]

    def _complete(self, sessions: Sequence[BlockingSession]) -> None:
        waiting = {
            session.channel.sock.fileno(): session
            for session in sessions
            if not (session.in_use.closing or session.ended)
        }
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while len(waiting) > 1:
            soonest = min(session.deadline for session in waiting.values())
            began = monotonic()
            ready = self._wait(poll, soonest)
            now = monotonic()
            for descriptor in ready:
                waiting[descriptor].machine.waited(now - began)
            for descriptor in ready if now < soonest else tuple(waiting):
                if waiting[descriptor].turn(now):
                    poll.unregister(descriptor)
                    del waiting[descriptor]
        for session in waiting.values():
            # The last one waits by itself, which is quicker.
            session.await_end()

    def _wait(self, poll: select.poll, deadline: float) -> list[int]:
        """The sockets with something to read; none where that time has come. Spins before it sleeps."""
        spinning = self._spinning
        for _ in range(spinning.tries):
            if ready := poll.poll(0):
                spinning.paid()
                return [descriptor for descriptor, _ in ready]
        began = monotonic()
        ready = poll_until(poll, deadline, self.in_use)
        spinning.in_vain(monotonic() - began)
        return [descriptor for descriptor, _ in ready]

    def cancel(self, error: BaseException) -> None:
        """End whatever is under way with ``error``."""
        sessions, self._under_way = self._under_way, []
        for session in sessions:
            session.machine.interrupt(error)

    def close(self, sessions: Iterable[BlockingSession]) -> None:
        """Close sessions side by side: within 2 s for all of them. Never raises; from any thread, at any moment."""
        open_ones = [session for session in sessions if not session.closed]
        limit = max((session.machine.limits.close for session in open_ones), default=0.0)
        for session in open_ones:
            session.in_use.refuse()
        alone = self.in_use.close(limit)
        try:
            self.cancel(SessionClosed("the sessions of this fleet were closed"))
            goodbyes = [
                session.goodbye(revived=not (session.in_use.close(limit) and alone)) for session in open_ones
            ]
            try:
                say_goodbyes(goodbyes)
            finally:
                for session, goodbye in zip(open_ones, goodbyes, strict=True):
                    session.left(confirmed=goodbye.confirmed)
                    session.in_use.leave()
        finally:
            self.in_use.leave()


def _outcome(session: BlockingSession) -> Any:
    """The result of what a session had under way, or the exception that it ended with."""
    try:
        # It may be one of a forked child, whose sessions are its parent's.
        session.in_use.check()
        return session.result()
    except Exception as error:  # noqa: BLE001  # returned instead of raised: it concerns this one only
        return error


def cores_wanted(hosts: Iterable[str]) -> int:
    """How many cores a fleet keeps busy here: this process, and each simulator that runs on this machine."""
    return max(1 + sum(host == "localhost" or is_loopback(host) for host in hosts), 2)
