"""Running one exchange on each of several machines side by side, from one thread.

All requests go out before any answer is read; one epoll watches all sockets. The machines know nothing of each other:
each keeps its own deadlines, and an error stays with the machine whose exchange it ended. As long as several answers
are awaited, a bounded and adaptive number of looks at the epoll comes before sleeping in it; the last one to answer is
left to its own link.
"""

from __future__ import annotations

import select
from contextlib import suppress
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import LocalProtocolError, SessionClosed
from ospbridge.session.crossing import crossed
from ospbridge.session.leaving import leave_together
from ospbridge.session.spinning import Spinning
from ospbridge.transport.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.errors import OspBridgeError
    from ospbridge.osp.client.machine import Exchange
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.link import GoOn, Link

__all__ = ["FleetLink", "cores_wanted"]

SPINS: Final = 200
"""Looks at the epoll before it sleeps, at most: some 100 us."""


class FleetLink:
    """Runs exchanges of many sessions. ``cores``: see ``cores_wanted``; spinning is left out where there are fewer."""

    def __init__(self, *, spin: bool = True, cores: int = 2) -> None:
        self._epoll = select.epoll()
        self._spinning = Spinning(SPINS, enabled=spin, cores=cores)
        self._watched: dict[int, Link] = {}
        self._begun: list[tuple[Link, Exception | None]] = []
        """What is under way; another list as soon as somebody ends that."""
        self._left = False

    def run(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | GoOn]]) -> list[Any]:
        """Each exchange's result, or the exception that it ended with, in the order of ``work``; see ``begin``."""
        self.begin(work)
        return self.finish()

    def begin(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | GoOn]]) -> None:
        """Start all exchanges and send what they say first. ``finish`` must follow.

        A function stands for a step with the inputs that a session took over, and makes an exchange only where that
        must be: the result of a step that came as it should is its ``StraightWay``.
        """
        if self._begun:
            for _, what in work:
                _give_up(what)
            raise LocalProtocolError("exchanges of this fleet are under way already")
        try:
            for session, what in work:
                self._begin_one(session, what)
        except BaseException as error:
            self.interrupt(error)
            raise

    def _begin_one(self, session: BlockingSession, what: Exchange[Any] | GoOn) -> None:
        link = session.link
        if session.closed:
            _give_up(what)
            self._begun.append((link, session.conversation.closed()))
            return
        self._watch(link)
        # Before it begins: what interrupts its beginning is to end it too.
        self._begun.append((link, None))
        try:
            if callable(what):
                link.set_off(session.conversation.filled, what)
            else:
                link.begin(what)
        except Exception as error:  # noqa: BLE001  # told by ``finish``
            self._begun[-1] = link, error

    def _watch(self, link: Link) -> None:
        """Sessions come anew when they are rebuilt; the epoll forgets closed sockets by itself."""
        fd = link.fd
        if self._watched.get(fd) is not link:
            self._watched[fd] = link
            with suppress(FileExistsError):
                self._epoll.register(fd, select.EPOLLIN)

    def finish(self) -> list[Any]:
        """Wait until all have ended. Each exchange's result, or the exception that it ended with."""
        begun = self._begun
        try:
            self._await({link.fd: link for link, failed in begun if failed is None})
            results = [_result(link) if failed is None else failed for link, failed in begun]
        except BaseException as error:
            if isinstance(error, Exception) and self._begun is not begun:
                raise self._taken_over() from error
            self.interrupt(error)
            raise
        if self._begun is not begun:
            raise self._taken_over()
        self._begun = []
        return results

    def _taken_over(self) -> OspBridgeError:
        """The error for whatever came of another thread that ended what this one waits for."""
        if self._left:
            return SessionClosed("the sessions of this fleet were closed while a step or reset was under way")
        return crossed("a fleet of simulators")

    @property
    def busy(self) -> bool:
        """Something was begun, and not finished."""
        return bool(self._begun)

    def interrupt(self, error: BaseException) -> None:
        """End whatever is under way with ``error``."""
        begun, self._begun = self._begun, []
        for link, failed in begun:
            if failed is None:
                link.interrupt(error)

    def _await(self, waiting: dict[int, Link]) -> None:
        for fd, link in tuple(waiting.items()):
            if link.finished:
                del waiting[fd]
        soonest = _soonest(waiting) if len(waiting) > 1 else inf
        while len(waiting) > 1:
            for fd, _ in self._ready(soonest):
                link = waiting.get(fd)  # type: ignore[assignment]  # None is asked for in the next line
                if link is None:
                    self._read_unasked(fd)
                    continue
                link.read()
                deadline = link.deadline
                if deadline is None:
                    del waiting[fd]
                elif deadline < soonest:
                    soonest = deadline
            if monotonic() >= soonest:
                soonest = self._expire(waiting)
        for link in waiting.values():
            link.complete()

    def _ready(self, soonest: float) -> list[tuple[int, int]]:
        """The sockets with something to read; none where the soonest deadline has come. Spins before it sleeps."""
        poll = self._epoll.poll
        spinning = self._spinning
        for _ in range(spinning.tries):
            ready = poll(0)
            if ready:
                spinning.paid()
                return ready
        began = monotonic()
        ready = poll(max(soonest - began, 0.0))
        spinning.in_vain(monotonic() - began)
        return ready

    def _expire(self, waiting: dict[int, Link]) -> float:
        """Serve those whose deadline has come; the soonest of the deadlines that are left."""
        for fd, link in tuple(waiting.items()):
            deadline = link.deadline
            if deadline is not None and deadline <= monotonic():
                link.expire()
            if link.finished:
                del waiting[fd]
        return _soonest(waiting)

    def _read_unasked(self, fd: int) -> None:
        """A machine without an exchange got something: late, doubled or another client's doing."""
        link = self._watched.get(fd)
        if link is not None and link.fd == fd:
            link.drain()

    def leave(self, sessions: Iterable[BlockingSession]) -> None:
        """Close sessions side by side: within 2 s for all of them. Nothing may be used afterwards."""
        self._left = True
        self.interrupt(SessionClosed("the sessions of this fleet were closed"))
        try:
            leave_together([session for session in sessions if not session.closed])
        finally:
            self._watched.clear()
            self._epoll.close()

    def disown(self) -> None:
        """In a forked child: the sessions are the parent's."""
        self._begun.clear()
        self._epoll.close()


def _soonest(waiting: dict[int, Link]) -> float:
    deadlines = [link.deadline for link in waiting.values()]
    return min((deadline for deadline in deadlines if deadline is not None), default=inf)


def _give_up(what: Exchange[Any] | GoOn) -> None:
    """Of what cannot be begun."""
    if not callable(what):
        what.close()


def _result(link: Link) -> Any:
    try:
        return link.result()
    except Exception as error:  # noqa: BLE001  # returned instead of raised: it concerns this one only
        return error


def cores_wanted(hosts: Iterable[str]) -> int:
    """How many cores a fleet keeps busy here: this process, and each simulator that runs on this machine."""
    return max(1 + sum(host == "localhost" or is_loopback(host) for host in hosts), 2)
