"""A machine and its connected UDP socket: what both drivers do without waiting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.session.spinning import Spinning
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from ospbridge.observe.tally import Tally
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import ClientMachine

__all__ = ["MOST_AT_ONCE", "Datagrams"]

IDLE: Final = 0.01
"""Seconds after which a link that rested first reads what came meanwhile."""
MOST_AT_ONCE: Final = 10_000
"""Datagrams taken in without looking at anything else; a flood must not hold the caller for ever."""


class Datagrams:
    """Base of the links. The socket is non-blocking and connected to the handler at ``port``.

    ``clock`` is the time base of the driver; ``spins`` how often a receive is tried before it waits, at most; ``tally``
    counts the datagrams, where somebody wants to know.
    """

    __slots__ = (
        "_clock",
        "_machine",
        "_port",
        "_socket",
        "_spinning",
        "_tally",
        "_touched",
        "_trace",
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
        self._machine = machine
        self._port = port
        self._trace = trace
        self._tally = tally
        self._clock = clock
        self._spinning = Spinning(spins)
        self._touched = clock()

    def take_early(self, datagrams: list[bytes]) -> None:
        """What the handler sent before the socket was connected to it."""
        for data in datagrams:
            self._take(data, self._clock())

    def drain(self) -> None:
        """Take in what came while no exchange was under way, without waiting."""
        try:
            for _ in range(MOST_AT_ONCE):
                try:
                    data = self._socket.recv(LARGEST_DATAGRAM)
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

        A closed port is raised again: nobody is there any more.
        """
        if isinstance(error, ConnectionRefusedError):
            raise error
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
        send = self._socket.send
        tally = self._tally
        try:
            for datagram in outgoing:
                if self._trace is not None:
                    self._trace.sent(bytes(datagram), self._port)
                if tally is not None:
                    tally.sent[datagram[0]] += 1
                send(datagram)
        except BlockingIOError:
            # A full send buffer is a lost datagram: the exchanges know what to do about those.
            self._machine.anomaly("the send buffer was full")
        except OSError as error:
            self._disturbed(error)
        finally:
            outgoing.clear()
