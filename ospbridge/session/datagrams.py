"""A machine and its connected UDP socket: what both drivers do without waiting."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from errno import EBADF
from math import inf
from socket import MSG_DONTWAIT
from typing import TYPE_CHECKING, Final, Self

from ospbridge.errors import RemoteProtocolError, SessionClosed
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.session.spinning import Spinning
from ospbridge.transport.udp import LARGEST_DATAGRAM
from ospbridge.transport.volleys import Volleys

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client.machine import ClientMachine
    from ospbridge.osp.step.straight import StraightWay

__all__ = ["BRISK", "IDLE", "LONG", "MOST_AT_ONCE", "SELDOM", "Datagrams"]

IDLE: Final = 0.0
"""Seconds after which a link that rested first reads what came meanwhile: at once.

What is there before a vote is sent cannot be its answer. Were it taken for that, as the answers are of a step that a
copy of the vote ran, each step from then on would bring what the one before it did.
"""
BRISK: Final = 1e-4
"""Seconds from step to step below which not every step looks: what comes in so little time mostly comes behind it."""
SELDOM: Final = 8
"""Brisk steps in a row that do not look: what came once too often stays there, and is found by the next one."""
LONG: Final = 0.05
"""Seconds of a wait that count against the patience with what comes next."""
BUFFER_FULL: Final = "the send buffer was full"
MOST_AT_ONCE: Final = 10_000
"""Datagrams taken in without looking at anything else; a flood must not hold the caller for ever."""


class Datagrams(ABC):
    """Base of the links. The socket is connected to the handler at ``port``; nothing here waits for it.

    ``clock`` is the time base of the driver; ``spins`` how often a receive is tried before it waits, at most; ``tally``
    counts the datagrams, where somebody wants to know.
    """

    __slots__ = (
        "_clock",
        "_held",
        "_left",
        "_left_way",
        "_machine",
        "_port",
        "_sleeping",
        "_socket",
        "_spinning",
        "_tally",
        "_touched",
        "_trace",
        "_unlooked",
        "_volleys",
        "_waiting",
        "gone",
    )

    def __init__(
        self,
        sock: socket.socket,
        machine: ClientMachine,
        *,
        port: int,
        trace: TraceWriter | None,
        clock: Callable[[], float],
        spins: int,
        tally: Tally | None = None,
    ) -> None:
        self.gone = False
        """The handler's port is closed: nobody is there to be told anything."""
        self._socket = sock
        self._volleys = Volleys(sock)
        self._held: list[bytes | bytearray] = []
        """Acknowledgements that are to go out together."""
        self._machine = machine
        self._port = port
        self._trace = trace
        self._tally = tally
        self._clock = clock
        self._spinning = Spinning(spins)
        self._waiting = Spinning(spins)
        """The same for completions, which a simulator may take its time for while it acknowledges at once."""
        self._sleeping = Spinning(0)
        self._touched = clock()
        self._unlooked = 0
        """Brisk steps since one looked first whether something was there."""
        self._left_way: StraightWay | None = None
        self._left: bytes | OSError | None = None
        """What made a link leave a straight way: a datagram, or what the network said; None: nothing that came."""

    @abstractmethod
    def successor(self, machine: ClientMachine) -> Self:
        """The same way for another machine."""

    def take_early(self, datagrams: list[bytes]) -> None:
        """What the handler sent before the socket was connected to it."""
        for data in datagrams:
            self._take(data, self._clock())

    # --- the straight way of a step --------------------------------------------------------------------------------

    def _along(self, way: StraightWay, first: Sequence[bytearray], *, woken: bool = False) -> bool:
        """From where the way stands to its end, with nothing between it and the socket. False where it was left.

        ``first`` is what is still to be sent before anything comes. ``woken``: what comes first was slept for.
        """
        if way.pipelined:
            return self._together(way, first, woken=woken)
        sock = self._socket
        try:
            if first:
                sock.send(first[0], MSG_DONTWAIT)
                if self._spinning.tries or way.count > 1:
                    way.prepare()
            came = way.came
            receive, send = sock.recv, sock.send
            # Beside a simulator that thinks for long, all that spinning could save of its acknowledgements is next to
            # nothing, and one that was woken on this very core waits for it.
            spinning = self._spinning if self._waiting.tries else self._sleeping
            for head, size, answer, completes in way.expected[len(came) :] if came else way.expected:
                if completes:
                    spinning = self._waiting
                tries = spinning.tries
                # Who was woken finds most of what follows there: a try is less than a wait.
                for _ in range(tries or (1 if came or not first else 0)):
                    try:
                        data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
                        break
                    except BlockingIOError:
                        continue
                else:
                    slept_for = self._wait(way, spinning)
                    if slept_for is None:
                        return False
                    data = slept_for
                    tries = spinning.most
                if tries < spinning.most:
                    if not woken:
                        spinning.paid()
                    woken = False
                if not data.startswith(head) or (
                    len(data) != size and (len(data) != size + 1 or data[-1] != DATAGRAM_END)
                ):
                    return self._leave(way, data)
                came.append(data)
                if answer is not None:
                    send(answer, MSG_DONTWAIT)
        except OSError as error:
            return self._leave(way, error)
        return True

    def _together(self, way: StraightWay, first: Sequence[bytearray], *, woken: bool) -> bool:
        """``_along`` for several agents whose votes are all under way at once.

        What can go out together does: the votes, and the acknowledgements of all completions that are there. They wait
        for no completion that is not: servers may send one only when that before it was acknowledged.

        The loop is that of ``_along`` once more, since a call for each datagram is what both do without.
        """
        receive = self._socket.recv
        came = way.came
        spinning = self._spinning if self._waiting.tries else self._sleeping
        held = self._held
        try:
            if first:
                held.clear()
                self._volleys.send(self._socket, first)
                way.prepare()
            for head, size, answer, completes in way.expected[len(came) :] if came else way.expected:
                if completes:
                    spinning = self._waiting
                tries = spinning.tries
                for _ in range(tries or 1):
                    try:
                        data = receive(LARGEST_DATAGRAM, MSG_DONTWAIT)
                        break
                    except BlockingIOError:
                        if held:
                            self._release()
                        continue
                else:
                    slept_for = self._wait(way, spinning)
                    if slept_for is None:
                        return False
                    data = slept_for
                    tries = spinning.most
                if tries < spinning.most and not woken:
                    spinning.paid()
                woken = False
                if not data.startswith(head) or (
                    len(data) != size and (len(data) != size + 1 or data[-1] != DATAGRAM_END)
                ):
                    return self._leave(way, data)
                came.append(data)
                if answer is not None:
                    held.append(answer)
            if held:
                self._release()
        except OSError as error:
            return self._leave(way, error)
        return True

    def _release(self) -> None:
        """Send what was held back to go out together."""
        try:
            self._volleys.send(self._socket, self._held)
        finally:
            self._held.clear()

    @abstractmethod
    def _wait(self, way: StraightWay, spinning: Spinning) -> bytes | None:
        """Nothing came while spinning: the next datagram, or None where the way was left."""

    def left_way(self) -> StraightWay | None:
        """The way that was left, for the exchange that goes on from it; None: the step has not begun."""
        way, self._left_way = self._left_way, None
        return way

    def _leave(self, way: StraightWay, left: bytes | OSError | None) -> bool:
        """False: the straight way ends here. An exchange deals with a datagram, an error, or what is still to come."""
        if self._held:
            with suppress(OSError):
                self._release()
        if self._tally is not None:
            self._count(way, self._tally)
        self._left = left
        self._left_way = way
        way.left = True
        # Nothing may be read as unasked before that exchange has begun.
        self._touched = inf
        return False

    def _fell_silent(self, way: StraightWay) -> None:
        """Nothing came for as long as the patience lasts."""
        if not way.completing:
            # Should it be volleys that get lost, they are the last. A world that takes its time has got its votes.
            self._volleys.enabled = False
        self._leave(way, None)

    def _late(self, slept: float) -> None:
        """A datagram was slept for so long, in seconds: more than ``LATE``.

        Only steps count, and only those that wait for no other client's vote.
        """
        machine = self._machine
        if machine.vote_outstanding and not machine.foreign:
            machine.stalls.late(machine.clock.steps + 1, slept)

    def _count(self, way: StraightWay, tally: Tally) -> None:
        """What went over the line on a way that was left."""
        for datagram in way.first:
            tally.sent[datagram[0]] += 1
        for data, (_, _, answer, _) in zip(way.came, way.expected, strict=False):
            tally.received[data[0]] += 1
            if answer is not None:
                tally.sent[answer[0]] += 1

    def _led_off(self, now: float) -> None:
        """An exchange was started that may go on from a straight way that was left: take in what led off it.

        Raises ConnectionRefusedError where nobody is there any more.
        """
        left, self._left = self._left, None
        self._left_way = None
        if isinstance(left, BlockingIOError):
            self._machine.anomaly(BUFFER_FULL)
        elif isinstance(left, OSError):
            self._disturbed(left)
        elif left is not None:
            self._take(left, now)

    def drain(self) -> None:
        """Take in what came while no exchange was under way, without waiting."""
        try:
            for _ in range(MOST_AT_ONCE):
                try:
                    data = self._socket.recv(LARGEST_DATAGRAM, MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError as error:
                    self._disturbed(error)
                    continue
                self._take(data, self._clock())
            if self._machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._refused(self._clock())
        self._touched = self._clock()

    def _disturbed(self, error: OSError) -> None:
        """What a router or a firewall said of an earlier datagram; the exchanges know what to do about its loss.

        A closed port is raised again: nobody is there any more. Raises SessionClosed where another thread has closed
        the socket meanwhile: every later try would say the same.
        """
        if isinstance(error, ConnectionRefusedError):
            raise error
        if error.errno == EBADF:
            raise SessionClosed(
                f"the session with {self._machine.peer} was closed by another thread while this one used it"
            )
        self._machine.anomaly(f"the network says: {error.strerror}")

    def _refused(self, now: float) -> None:
        self.gone = True
        self._machine.handle_refused(now)

    def _take(self, data: bytes, now: float) -> None:
        if self._trace is not None:
            self._trace.received(data, self._port)
        if self._tally is not None:
            self._tally.received[data[0] if data else 0] += 1
        try:
            self._machine.receive(data, now)
        except RemoteProtocolError as error:
            # Nothing has changed; if it stood for an answer, the silence that follows is dealt with.
            self._machine.anomaly(error.message)

    def _send_all(self) -> None:
        outgoing = self._machine.outgoing
        tally = self._tally
        try:
            if self._trace is not None:
                for datagram in outgoing:
                    self._trace.sent(bytes(datagram), self._port)
            if tally is not None:
                for datagram in outgoing:
                    tally.sent[datagram[0]] += 1
            if len(outgoing) == 1:
                self._socket.send(outgoing[0], MSG_DONTWAIT)
            else:
                self._volleys.send(self._socket, outgoing)
        except BlockingIOError:
            # A full send buffer is a lost datagram: the exchanges know what to do about those.
            self._machine.anomaly(BUFFER_FULL)
        except OSError as error:
            self._disturbed(error)
        finally:
            outgoing.clear()
