"""Quick answers to one client's steps, and the loop in which many such clients are answered.

While one client alone controls agents of a simulator, its votes are answered from bytes that were made before; all
else is left to the server machine. A simulator that thinks does so in the loop: its answer is due at a moment, until
when the process sleeps or answers others.
"""

from __future__ import annotations

import heapq
import os
import select
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Final

from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Mapping

    from ospbridge.osp.repository import Clock

__all__ = ["LARGEST", "Answer", "Line", "Loop", "spins_for"]

LARGEST: Final = 65_536
"""Bytes of a datagram, at most."""
SPINS: Final = 600
"""Tries of a receive between two datagrams before the responder sleeps: some 300 us."""
LOOK_EVERY: Final = 1000
"""Datagrams from one client before the others are looked at."""
VOTE: Final = int(Code.NEXT_SIMULATION_STEP)
ACKNOWLEDGED: Final = int(Code.NEXT_SIMULATION_STEP_COMPLETED_ACK)
"""As plain numbers, which are compared faster."""
QUESTIONS: Final = frozenset(
    {int(Code.GET_VALUE), int(Code.GET_VALUE_IDS), int(Code.GET_AGENT_OVERVIEW), int(Code.GET_AGENT_INFO)}
    | {int(Code.AGENT_OVERVIEW_ACK), int(Code.AGENT_INFO_ACK)}
)
"""What is only asked, and what confirms an answer."""

Answer = tuple[bytes, bytes]
"""To an agent's vote: acknowledgement and completion."""


class Loop:
    """Waits for sockets and moments; what is due is called when nothing more is there to read.

    ``spins``: how often one who waits for a single client may try before it sleeps.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Callable[[], object]] = {}
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._number = count()
        self._ended = False
        self.spins = 0

    def add(self, descriptor: int, reader: Callable[[], object]) -> None:
        """Call ``reader`` whenever something is there to read."""
        self._readers[descriptor] = reader
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLHUP)

    def remove(self, descriptor: int) -> None:
        """To be called before it is closed."""
        del self._readers[descriptor]
        self._epoll.unregister(descriptor)

    def at(self, moment: float, due: Callable[[], object]) -> None:
        """Call ``due`` at that moment of the monotonic clock, or soon after."""
        heapq.heappush(self._due, (moment, next(self._number), due))

    def run(self, until: int) -> None:
        """Serve until descriptor ``until`` becomes readable."""
        self.add(until, self._end)
        poll, readers, due = self._epoll.poll, self._readers, self._due
        while not self._ended:
            ready = poll(0)
            if not ready:
                wait = None if not due else due[0][0] - monotonic()
                if wait is None or wait > 0.0:
                    # An epoll waits for whole milliseconds; the kernel's select for the moment itself.
                    select.select([self._epoll], [], [], wait)
                    ready = poll(0)
            for descriptor, _ in ready:
                reader = readers.get(descriptor)
                if reader is not None:
                    reader()
            if due:
                now = monotonic()
                while due and due[0][0] <= now:
                    heapq.heappop(due)[2]()

    def _end(self) -> None:
        self._ended = True


class Line:
    """One client's socket. ``others`` takes the datagrams that are no votes to be answered here.

    ``answers``: by the four bytes of each agent's id, ascending; none while another client controls agents too.
    ``one_by_one``: the next completion only follows the acknowledgement of the one before.
    """

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        clock: Clock,
        others: Callable[[bytes], None],
        *,
        one_by_one: bool,
        think: float,
    ) -> None:
        self.closed = False
        self._loop = loop
        self._socket = sock
        self._clock = clock
        self._others = others
        self._one_by_one = one_by_one
        self._think = think
        self._answers: Mapping[bytes, Answer] = {}
        self._votes: set[bytes] = set()
        self._to_tell: list[bytes] = []
        """Completions that wait for an acknowledgement, the next one last."""
        self._thinking = False
        """A completion is due."""
        self._stepping = False
        """A step was answered here, and nothing else came since: acknowledgements are meant for it."""
        loop.add(sock.fileno(), self.read)

    def answer(self, answers: Mapping[bytes, Answer]) -> None:
        """From now on, to these votes."""
        if answers.keys() != self._answers.keys():
            self._votes.clear()
        self._answers = answers

    def send(self, data: bytes) -> None:
        """To the client, if it still listens."""
        try:  # noqa: SIM105  # suppressing costs half as much as sending
            self._socket.send(data)
        except OSError:
            pass

    def close(self) -> None:
        """Safe to call only once."""
        self.closed = True
        self._loop.remove(self._socket.fileno())
        self._socket.close()

    def read(self) -> None:
        """Answer steps while they come. Spins between them, where the loop allows that."""
        receive, send = self._socket.recv, self.send
        patience = self._loop.spins + 1
        # The commonest case by the shortest way: what is measured is not this.
        alone = self._answers if len(self._answers) == 1 and not self._think else {}
        for number in range(LOOK_EVERY):
            for _ in range(patience if number else 1):
                try:
                    data = receive(LARGEST)
                except BlockingIOError:
                    continue
                except ConnectionError:
                    return
                else:
                    break
            else:
                return
            if data and data[0] == VOTE and (answer := alone.get(data[1:5])) is not None:
                send(answer[0])
                send(answer[1])
                self._clock.steps += 1
                self._stepping = True
            elif not self._quick(data):
                if self._thinking and data and data[0] in QUESTIONS:
                    # It changes nothing: the step under way goes on, as with any simulator.
                    self._others(data)
                    return
                self._stepping = False
                self._votes.clear()
                self._to_tell.clear()
                self._others(data)
                return

    def _quick(self, data: bytes) -> bool:
        """Answer a vote or an acknowledgement; False for anything else."""
        code = data[0] if data else 0
        if code == VOTE:
            answers = self._answers
            answer = answers.get(agent := data[1:5])
            if answer is None:
                return False
            self._stepping = True
            self.send(answer[0])
            if len(answers) > 1:
                self._votes.add(agent)
                if len(self._votes) < len(answers):
                    return True
                self._votes.clear()
            if self._think:
                self._thinking = True
                self._loop.at(monotonic() + self._think, self._complete)
            else:
                self._complete()
            return True
        if code == ACKNOWLEDGED and self._stepping:
            if self._to_tell:
                self.send(self._to_tell.pop())
            return True
        return False

    def _complete(self) -> None:
        """The step is done: tell it."""
        self._thinking = False
        if self.closed or not self._stepping:
            return
        self._clock.steps += 1
        if self._one_by_one and len(self._answers) > 1:
            self._to_tell = [completion for _, completion in self._answers.values()][::-1]
            self.send(self._to_tell.pop())
            return
        for _, completion in self._answers.values():
            self.send(completion)


def spins_for(*, simulators: int, think: float) -> int:
    """How often a receive may be tried: with a core to spare, for one client that does not wait by itself."""
    return SPINS if len(os.sched_getaffinity(0)) > 1 and simulators == 1 and not think else 0
