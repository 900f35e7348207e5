"""What sessions do with sockets, and how they say goodbye.

Only ``wait_readable`` and ``say_goodbyes`` wait: a driver calls ``turn`` when something, or ``deadline``, has come.
"""

from __future__ import annotations

import select
from errno import EBADF
from math import ceil
from socket import MSG_DONTWAIT
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from ospbridge.errors import RemoteProtocolError, SessionClosed
from ospbridge.osp.connect import SurplusMachine
from ospbridge.transport.udp import LARGEST_DATAGRAM, open_beside, receive_from, send_to

if TYPE_CHECKING:
    import socket
    from collections.abc import Generator, Iterable, Sequence

    from ospbridge.interface import Endpoint
    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import ClientMachine, Exchange
    from ospbridge.osp.connect import ConnectMachine
    from ospbridge.osp.fast_path import FastPath
    from ospbridge.osp.profile import Profile

__all__ = ["Channel", "Goodbye", "OpenPort", "say_goodbyes", "surplus_port", "wait_readable"]

M = TypeVar("M", bound="ConnectMachine | SurplusMachine")
Left: TypeAlias = "bytes | OSError | None"
"""What ended a fast path: a datagram that does not belong there, what the network said, or silence."""
BUFFER_FULL: Final = "the send buffer was full"
MOST_AT_ONCE: Final = 10_000
"""Datagrams taken in without looking at anything else; a flood must not hold the caller for ever."""


class Channel:
    """A client machine and its socket, which is connected to the handler at ``port``. ``tally`` counts datagrams.

    ``surplus``: handlers that other INITs of ours are answered by, when this one has left.
    """

    def __init__(
        self,
        sock: socket.socket,
        machine: ClientMachine,
        *,
        port: int,
        surplus: OpenPort[SurplusMachine] | None = None,
        trace: TraceWriter | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.sock = sock
        self.machine = machine
        self.surplus = surplus
        self.gone = False
        """The handler's port is closed: nobody is there to be told anything."""
        self.trace = trace
        self.tally = tally
        self._port = port

    def begin(self, exchange: Exchange[Any], now: float) -> None:
        """Start an exchange, behind what came before and cannot be its answer. Raises where none can be started."""
        self.drain(now)
        self.begin_behind(None, exchange, now)

    def begin_behind(self, left: Left, exchange: Exchange[Any], now: float) -> None:
        """``begin`` an exchange that goes on behind a fast path, with what ended that."""
        try:
            self.machine.begin(exchange, now)
            if isinstance(left, BlockingIOError):
                self.machine.notices.anomaly(BUFFER_FULL)
            elif isinstance(left, OSError):
                self._disturbed(left)
            elif left is not None:
                self.take(left, now)
            self._flush()
        except ConnectionRefusedError:
            self.refused(now)
        except BaseException as error:
            self.machine.interrupt(error)
            raise

    def turn(self, now: float) -> bool:
        """Take in what there is, or that the deadline has come; True: the exchange has ended (``machine.result``)."""
        machine = self.machine
        try:
            if self._read(now) and machine.deadline is not None and machine.deadline <= now:
                machine.handle_timer(now)
                self._flush()
        except ConnectionRefusedError:
            self.refused(now)
        except Exception as error:  # noqa: BLE001  # told by the result
            machine.interrupt(error)
        return machine.finished

    def drain(self, now: float) -> None:
        """Take in what came while no exchange was under way."""
        try:
            self._read(now)
        except ConnectionRefusedError:
            self.refused(now)

    def _read(self, now: float) -> bool:
        """Take in what there is, to the end of the exchange under way at most; True: nothing more is there."""
        under_way = not self.machine.finished
        for _ in range(MOST_AT_ONCE):
            data = self._receive()
            if data is None:
                return True
            self.take(data, now)
            self._flush()
            if under_way and self.machine.finished:
                break
        return False

    def take(self, data: bytes, now: float) -> None:
        """A datagram came."""
        if self.trace is not None:
            self.trace.received(data, self._port)
        if self.tally is not None:
            self.tally.received[data[0] if data else 0] += 1
        try:
            self.machine.receive(data, now)
        except RemoteProtocolError as error:
            # Nothing has changed; if it stood for an answer, the silence that follows is dealt with.
            self.machine.notices.anomaly(error.message)

    def refused(self, now: float) -> None:
        """The handler's port is closed."""
        self.gone = True
        self.machine.handle_refused(now)

    def count(self, path: FastPath) -> None:
        """What a fast path that was left has sent and brought."""
        if self.tally is not None:
            for datagram in path.first:
                self.tally.sent[datagram[0]] += 1
            for data, (_, _, answer, _) in zip(path.came, path.expected, strict=False):
                self.tally.received[data[0]] += 1
                if answer is not None:
                    self.tally.sent[answer[0]] += 1

    def _receive(self) -> bytes | None:
        while True:
            try:
                return self.sock.recv(LARGEST_DATAGRAM, MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                self._disturbed(error)

    def _flush(self) -> None:
        outgoing = self.machine.outgoing
        try:
            for datagram in outgoing:
                if self.trace is not None:
                    self.trace.sent(bytes(datagram), self._port)
                if self.tally is not None:
                    self.tally.sent[datagram[0]] += 1
                try:
                    self.sock.send(datagram, MSG_DONTWAIT)
                except BlockingIOError:
                    # A full send buffer is a lost datagram: the exchanges know what to do about those.
                    self.machine.notices.anomaly(BUFFER_FULL)
                except OSError as error:
                    self._disturbed(error)
        finally:
            outgoing.clear()

    def _disturbed(self, error: OSError) -> None:
        """What a router or a firewall said of an earlier datagram: it is lost. A closed port is raised again.

        Raises SessionClosed where the socket was closed meanwhile.
        """
        if isinstance(error, ConnectionRefusedError):
            raise error
        if error.errno == EBADF:
            raise SessionClosed(
                f"the session with {self.machine.peer} was closed while it was used"
            ) from None
        self.machine.notices.anomaly(f"the network says: {error.strerror}")


class OpenPort(Generic[M]):
    """A machine and a socket that is connected to nobody: whoever answers may be new to both."""

    def __init__(
        self, sock: socket.socket, machine: M, *, trace: TraceWriter | None = None, tally: Tally | None = None
    ) -> None:
        self.sock = sock
        self.machine = machine
        self._trace = trace
        self._tally = tally

    def turn(self, now: float) -> bool:
        """Take in and send what there is; True: it is over. Raises what the machine does."""
        self.hear(now)
        self.machine.handle_timer(now)
        self.say()
        return self.machine.finished

    def hear(self, now: float) -> None:
        """Take in what there is."""
        for _ in range(MOST_AT_ONCE):
            packet = receive_from(self.sock)
            if packet is None:
                break
            data, source = packet
            if self._trace is not None:
                self._trace.received(data, source.port)
            if self._tally is not None:
                self._tally.received[data[0] if data else 0] += 1
            self.machine.receive(data, source, now)

    def say(self) -> None:
        """Send what there is to send."""
        for datagram, to in self.machine.outgoing:
            if self._trace is not None:
                self._trace.sent(datagram, to.port)
            if self._tally is not None:
                self._tally.sent[datagram[0]] += 1
            send_to(self.sock, datagram, to)
        self.machine.outgoing.clear()


def surplus_port(
    sock: socket.socket, server: Endpoint, profile: Profile, owed: int, trace: TraceWriter | None = None
) -> OpenPort[SurplusMachine] | None:
    """A second socket at the port of a session, for answers to INITs that were sent again; None where none are owed.

    The session's own is connected to its handler and hears nobody else. The answers come when the server has read on,
    which one that serves one client at a time does when that one has left: whoever answers then is told END.
    """
    second = open_beside(sock) if owed > 0 else None
    return None if second is None else OpenPort(second, SurplusMachine(server, profile, owed), trace=trace)


class Goodbye:
    """The end of a session, without waiting: its handler is told first, then those that answer its other INITs.

    ``exchange`` None: nobody is left to be told.
    """

    def __init__(self, channel: Channel, exchange: Exchange[bool] | None) -> None:
        self.confirmed = False
        self.error: Exception | None = None
        """What the exchange ended with."""
        self._course = self._say(channel, exchange)
        self.sock, self.deadline = next(self._course)
        """What it waits for to be readable, and until when."""

    def turn(self, now: float) -> bool:
        """Begin, or go on; True: it is over. Never raises."""
        try:
            self.sock, self.deadline = self._course.send(now)
        except StopIteration:
            return True
        except Exception as error:  # noqa: BLE001  # nothing more is said, and the lease is left
            self.error = error
            return True
        return False

    def _say(
        self, channel: Channel, exchange: Exchange[bool] | None
    ) -> Generator[tuple[socket.socket, float], float, None]:
        now = yield channel.sock, 0.0
        give_up = now + channel.machine.limits.close
        if exchange is not None:
            channel.begin(exchange, now)
            while not channel.turn(now):
                now = yield channel.sock, channel.machine.deadline or 0.0
            self.confirmed = channel.machine.result() is True
        surplus = channel.surplus
        if surplus is not None and (self.confirmed or channel.gone):
            # Only a server whose handler has left reads on.
            surplus.machine.begin(now, give_up)
            while not surplus.turn(now):
                now = yield surplus.sock, surplus.machine.deadline


def say_goodbyes(goodbyes: Iterable[Goodbye]) -> None:
    """Side by side, from one thread: one that is silent to the end takes nobody's time."""
    waiting = list(goodbyes)
    while waiting := [each for each in waiting if not each.turn(monotonic())]:
        wait_readable([each.sock for each in waiting], min(each.deadline for each in waiting))


def wait_readable(socks: Sequence[socket.socket], deadline: float) -> None:
    """Until something may be there on one of these, or that time has come."""
    poll = select.poll()
    for sock in socks:
        poll.register(sock, select.POLLIN)
    poll.poll(max(0, ceil((deadline - monotonic()) * 1000)))
