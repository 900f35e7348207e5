"""One look at all connections of a hub: who has something to say, and who has hung up.

Their tasks rest meanwhile. What comes is handed to the connection at once, which can take an action without its task;
so a step of many environments costs no switch of tasks. And while steps come thick and fast one of the tasks leads: it
looks again and again, runs the steps that are due, and lets the scheduler have its turn every few milliseconds.
"""

from __future__ import annotations

import select
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.barrier import StepBarrier

__all__ = ["HubWatch", "Watched"]

MOST_AT_ONCE: Final = 128
"""Connections that one look tells about."""
SPINS: Final = 100
"""Looks before one that waits, at most: some 50 us in which no other task runs."""
CORES: Final = 3
"""Of the environment, the daemon and the simulator: with fewer, spinning here delays the one that is waited for."""
LINGER: Final = 0.001
"""Seconds that whoever leads waits for the next request in its look, in which no other task runs."""
GIVE_WAY: Final = 0.004
"""Seconds after which whoever leads lets other tasks have their turn; steps do so too, while they are waited for."""
AT_ONCE: Final = 10e-6
"""Seconds in which nobody has slept."""
LONGEST_REST: Final = 64
"""Times that nobody leads, at most, after looks in vain: more with each of them."""
GONE: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Watched(Protocol):
    """A connection."""

    needed: bool
    """Its task has something to do."""
    acting: Sequence[Attachment]
    """For whom it has acted, and waits."""

    def readable(self, now: float, *, at_once: bool = False) -> bool:
        """Something may have come, which is read at that time of trio's clock; whether it did. Must not raise.

        ``at_once``: a step that concerns nobody else may be taken by the way (``StepBarrier.step_at_once``).
        """
        ...

    def hung_up(self) -> None:
        """The other side is gone. Must not raise."""
        ...


class HubWatch:
    """Of one hub. ``spin``: whether a task may lead, and with a core for it look several times before it waits.

    A connection is told of once for all that has come: it must read until nothing is there before it rests.
    """

    def __init__(self, barrier: StepBarrier, *, spin: bool) -> None:
        self.read_elsewhere = 0
        """Connections whose tasks wait for their requests themselves."""
        self.woke = False
        """A task has something to do, and waits for its turn."""
        self._barrier = barrier
        self._lingers = spin
        self._spinning = Spinning(SPINS, enabled=spin, cores=CORES)
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self.led = False
        """Somebody looks for all, and runs the steps that are due."""
        self._prompt = False
        """The next request was there before it was waited for, as where the environment has the daemon's own core."""
        self._slept = 0.0
        """Seconds of the latest look, without what was done about what it found."""
        self._in_vain = 0
        self._not_again = 0

    def add(self, descriptor: int, connection: Watched, *, reads: bool) -> None:
        """Look after a connection; where it does not ``read`` through the watch only whether it hangs up."""
        self._watched[descriptor] = connection
        self.read_elsewhere += not reads
        wanted = select.EPOLLIN if reads else 0
        self._epoll.register(descriptor, wanted | select.EPOLLRDHUP | select.EPOLLET)

    def remove(self, descriptor: int, *, reads: bool) -> None:
        """Its descriptor is closed, and has left the epoll set by itself."""
        del self._watched[descriptor]
        self.read_elsewhere -= not reads

    def look(self, seconds: float = 0.0, mine: Watched | None = None) -> bool:
        """Hand out what has come, or comes within so many seconds in which nothing else runs. False: nothing did.

        ``mine``: whose task looks, and runs what its own request has ``begun`` before anything else.
        """
        asked = monotonic()
        events = self._epoll.poll(seconds, MOST_AT_ONCE)
        self._slept = monotonic() - asked
        if not events:
            return False
        watched = self._watched
        now = trio.current_time()
        for descriptor, which in events:
            connection = watched.get(descriptor)
            if connection is None:
                continue
            if which & GONE:
                connection.hung_up()
            connection.readable(now, at_once=connection is mine)
        return True

    async def run(self) -> Never:
        """Look whenever there is something to see and nobody leads."""
        while True:
            await trio.lowlevel.wait_readable(self._epoll.fileno())
            self.look()
            if not self.led:
                self._barrier.summon()

    async def lead(self, mine: Watched) -> None:
        """Look for all, and run the steps that are due, until the task of ``mine`` is needed or it does not pay."""
        if self.led or not self._pays():
            return
        self.led = True
        barrier = self._barrier
        clock = trio.lowlevel.current_clock().current_time
        now = looked = checked = clock()
        try:
            while not mine.needed:
                if barrier.due:
                    if not mine.acting:
                        # Its client may want something else while the step lasts.
                        return
                    await barrier.run()
                elif (
                    not (self._prompt and not mine.acting and mine.readable(now, at_once=True))
                    # It may have acted already, or nothing has come for it.
                    and not self._look_long(mine)
                ):
                    self._in_vain = min(2 * self._in_vain + 1, LONGEST_REST)
                    self._not_again = self._in_vain
                    return
                if barrier.begun:
                    await barrier.run()
                now = clock()
                if self.woke or now - looked > GIVE_WAY:
                    # Others have their turn, here and in the scheduler: steps have seen to that while they were waited
                    # for, where nobody waits for it as now.
                    self.look()
                    looked = now
                    if self.woke or now - max(checked, barrier.yielded_at) > GIVE_WAY:
                        self.woke = False
                        await trio.lowlevel.checkpoint()
                        checked = clock()
                    if not self._lingering_harms_nobody:
                        return
        finally:
            self.led = False
            barrier.summon()

    def _look_long(self, mine: Watched) -> bool:
        spinning = self._spinning
        for _ in range(spinning.tries):
            if self.look(0.0, mine):
                spinning.paid()
                return True
        found = self.look(LINGER, mine)
        spinning.in_vain(self._slept)
        self._prompt = found and self._slept < AT_ONCE
        if found:
            self._in_vain = 0
        return found

    def _pays(self) -> bool:
        if not self._lingers or not self._lingering_harms_nobody:
            return False
        if self._not_again:
            self._not_again -= 1
            return False
        return True

    @property
    def _lingering_harms_nobody(self) -> bool:
        """All that the next step waits for comes through the watch."""
        return not self.read_elsewhere and self._barrier.awaits_watched_only

    def close(self) -> None:
        """Look no more."""
        self._epoll.close()
