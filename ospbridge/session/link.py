"""Moving one machine's datagrams over a connected UDP socket, for blocking callers."""

from __future__ import annotations

import select
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.errors import RemoteProtocolError
from ospbridge.session.spinning import Spinning
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["Link"]

T = TypeVar("T")
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""
IDLE: Final = 0.01
"""A link that rested longer than this many seconds first reads what came meanwhile."""


class Link:
    """Runs exchanges to their end. The socket is non-blocking and connected to the handler at ``port``."""

    __slots__ = ("_machine", "_poll", "_port", "_socket", "_spinning", "_touched", "_trace")

    def __init__(
        self, sock: socket.socket, machine: ClientMachine, *, port: int, spin: bool, trace: TraceWriter | None
    ) -> None:
        self._socket = sock
        self._machine = machine
        self._port = port
        self._trace = trace
        self._spinning = Spinning(SPINS, enabled=spin)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        self._touched = monotonic()

    def run(self, exchange: Exchange[T]) -> T:
        """The exchange's result, or its error. Bounded by the exchange's own limits."""
        machine = self._machine
        now = monotonic()
        if now - self._touched > IDLE:
            self.drain()
        try:
            machine.begin(exchange, now)
            while not machine.finished:
                if machine.outgoing:
                    self._send_all()
                data = self._receive(machine.deadline)
                now = monotonic()
                if data is None:
                    machine.handle_timer(now)
                else:
                    self._take(data, now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            machine.handle_refused(now)
        except BaseException as error:
            machine.interrupt(error)
            raise
        self._touched = now
        return machine.result()  # type: ignore[no-any-return]  # what the exchange returned

    def drain(self) -> None:
        """Take in what came while no exchange was under way, without waiting."""
        try:
            while True:
                try:
                    data = self._socket.recv(LARGEST_DATAGRAM)
                except BlockingIOError:
                    break
                self._take(data, monotonic())
            if self._machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._machine.handle_refused(monotonic())
        self._touched = monotonic()

    def take_early(self, datagrams: list[bytes]) -> None:
        """What the handler sent before the socket was connected to it."""
        for data in datagrams:
            self._take(data, monotonic())

    def _take(self, data: bytes, now: float) -> None:
        if self._trace is not None:
            self._trace.received(data, self._port)
        try:
            self._machine.receive(data, now)
        except RemoteProtocolError as error:
            # Nothing has changed; if it stood for an answer, the silence that follows is dealt with.
            self._machine.anomaly(error.message)

    def _send_all(self) -> None:
        outgoing = self._machine.outgoing
        send = self._socket.send
        try:
            for datagram in outgoing:
                if self._trace is not None:
                    self._trace.sent(bytes(datagram), self._port)
                send(datagram)
        except BlockingIOError:
            # A full send buffer is a lost datagram: the exchanges know what to do about those.
            self._machine.anomaly("the send buffer was full")
        finally:
            outgoing.clear()

    def _receive(self, deadline: float | None) -> bytes | None:
        """The next datagram, or None when ``deadline`` has come. Spins before it sleeps."""
        assert deadline is not None
        receive = self._socket.recv
        spinning = self._spinning
        for _ in range(spinning.tries):
            try:
                data = receive(LARGEST_DATAGRAM)
            except BlockingIOError:
                continue
            spinning.paid()
            return data
        spinning.in_vain()
        while True:
            try:
                return receive(LARGEST_DATAGRAM)
            except BlockingIOError:
                pass
            left = deadline - monotonic()
            if left <= 0:
                return None
            self._poll.poll(ceil(left * 1000))
