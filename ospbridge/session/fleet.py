"""Steps and exchanges of several sessions side by side, from one thread.

All requests go out before any answer is read; one poll watches all sockets. The machines know nothing of each other:
each keeps its own deadlines, and an error stays with the session whose step it ended.
"""

from __future__ import annotations

import select
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import LocalProtocolError, SessionClosed
from ospbridge.osp.client import SILENCE
from ospbridge.session.channel import say_goodbyes
from ospbridge.session.one_thread import OneThread
from ospbridge.transport.addresses import is_loopback
from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.osp.client import Exchange
    from ospbridge.osp.fast_path import FastPath
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.session.core import Resume

__all__ = ["SessionFleet", "cores_wanted"]

SPINS: Final = 200
"""Looks at the sockets before it sleeps, at most: some 100 us."""
SLEEP_AT_MOST: Final = 0.05
"""Seconds of one sleep, behind which is looked whether another thread closes the fleet."""


class _Turn:
    """One session's step, on its fast path or behind it, or another exchange."""

    __slots__ = ("_path", "_quiet_at", "_resume", "failed", "session")

    def __init__(self, session: BlockingSession) -> None:
        self.session = session
        self.failed: Exception | None = None
        """Why nothing could be begun."""
        self._path: FastPath | None = None
        self._resume: Resume | None = None
        self._quiet_at = 0.0

    def begin(self, what: Exchange[Any] | Resume, now: float) -> None:
        """Send what comes first. What goes wrong is told by ``result``."""
        session = self.session
        try:
            session.in_use.check()
            if not callable(what):
                session.channel.begin(what, now)
                return
            self._resume = what
            self._path = path = session.start_step(now)
            self._quiet_at = now + SILENCE
            if path is None or path.fallen_back:
                self._fall_back(now)
        except Exception as error:  # noqa: BLE001
            self.failed = error

    def read(self, now: float) -> bool:
        """Take in what there is, or that nothing came in time; True: it has ended."""
        path, session = self._path, self.session
        if path is None:
            return session.channel.turn(now)
        came = len(path.came)
        if session.follow(path, None):
            return True
        if len(path.came) > came:
            self._quiet_at = min(now + SILENCE, path.began + session.machine.limits.step)
        elif now >= self._quiet_at:
            session.fall_back(path, None)
        return self._fall_back(now) if path.fallen_back else False

    def _fall_back(self, now: float) -> bool:
        """An exchange goes on; True: it has ended already."""
        path, self._path = self._path, None
        assert self._resume is not None
        try:
            self.session.resume_step(path, self._resume(path), now)
        except Exception as error:  # noqa: BLE001  # told by ``result``
            self.failed = error
        return self.failed is not None or self.session.machine.finished

    def await_end(self) -> None:
        """``read`` of the last one that is awaited: its session waits for it, which is quicker."""
        session, path = self.session, self._path
        if path is None or not (session.follow(path, session.sleep_for) or self._fall_back(monotonic())):
            session.await_end()

    @property
    def ended(self) -> bool:
        """Nothing is awaited."""
        return self.failed is not None or (self._path is None and self.session.machine.finished)

    @property
    def deadline(self) -> float:
        """When it is to be read at the latest."""
        return self._quiet_at if self._path is not None else self.session.machine.deadline or 0.0

    def result(self) -> Any:
        """A fast path at its end, what an exchange returned, or the error that it ended with."""
        if self.failed is not None:
            return self.failed
        if self._path is not None:
            return self._path
        try:
            return self.session.machine.result()
        except Exception as error:  # noqa: BLE001  # returned instead of raised: it concerns this one only
            return error


class SessionFleet:
    """Runs many sessions. ``cores``: see ``cores_wanted``; spinning is left out where there are fewer."""

    def __init__(self, *, spin: bool = True, cores: int = 2) -> None:
        self.in_use = OneThread("a fleet of simulators")
        self._spinning = Spinning(SPINS, enabled=spin, cores=cores)
        self._turns: list[_Turn] = []
        """What is under way."""

    def run(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | Resume]]) -> list[Any]:
        """Each exchange's result, or the exception that it ended with, in the order of ``work``; see ``begin``."""
        self.begin(work)
        return self.finish()

    def begin(self, work: Sequence[tuple[BlockingSession, Exchange[Any] | Resume]]) -> None:
        """Start all, and send what they say first. ``finish`` must follow. What was under way is given up.

        A function stands for a step with the inputs that a session took over, and makes an exchange only where that
        must be: the result of a step that came as it should is its fast path.
        """
        with self.in_use:
            self.cancel(LocalProtocolError("a step was given up before its end"))
            try:
                for session, what in work:
                    # Before it begins: what interrupts its beginning is to end it too.
                    self._turns.append(_Turn(session))
                    self._turns[-1].begin(what, monotonic())
            except BaseException as error:
                self.cancel(error)
                raise

    def finish(self) -> list[Any]:
        """Wait until all have ended. Each one's result, or the exception that it ended with."""
        with self.in_use:
            turns = self._turns
            try:
                self._complete(turns)
            except BaseException as error:
                self.cancel(error)
                raise
            self._turns = []
            return [turn.result() for turn in turns]

    def _complete(self, turns: Sequence[_Turn]) -> None:
        for turn in turns:
            if turn.session.closed:
                # As all of them are in a forked child.
                turn.failed = SessionClosed(f"the session with {turn.session.server} was closed")
        waiting = {turn.session.channel.sock.fileno(): turn for turn in turns if not turn.ended}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while len(waiting) > 1:
            soonest = min(turn.deadline for turn in waiting.values())
            began = monotonic()
            ready = self._wait(poll, soonest)
            now = monotonic()
            for descriptor in ready:
                waiting[descriptor].session.note_sleep(now - began)
            for descriptor in ready if now < soonest else tuple(waiting):
                if waiting[descriptor].read(now):
                    poll.unregister(descriptor)
                    del waiting[descriptor]
        for turn in waiting.values():
            turn.await_end()

    def _wait(self, poll: select.poll, deadline: float) -> list[int]:
        """The sockets with something to read; none where that time has come. Spins before it sleeps."""
        spinning = self._spinning
        for _ in range(spinning.tries):
            if ready := poll.poll(0):
                spinning.paid()
                return [descriptor for descriptor, _ in ready]
        began = now = monotonic()
        while True:
            self.in_use.check()
            ready = poll.poll(ceil(1000 * min(max(deadline - now, 0.0), SLEEP_AT_MOST)))
            now = monotonic()
            if ready or now >= deadline:
                spinning.in_vain(now - began)
                return [descriptor for descriptor, _ in ready]

    def cancel(self, error: BaseException) -> None:
        """End whatever is under way with ``error``."""
        turns, self._turns = self._turns, []
        for turn in turns:
            turn.session.machine.interrupt(error)

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


def cores_wanted(hosts: Iterable[str]) -> int:
    """How many cores a fleet keeps busy here: this process, and each simulator that runs on this machine."""
    return max(1 + sum(host == "localhost" or is_loopback(host) for host in hosts), 2)
