"""Moving one machine's datagrams over a connected UDP socket, for trio.

The socket is an ordinary non-blocking one: receive first, and ask trio to wait only when nothing is there. That
leaves the scheduler out of most steps; a checkpoint every millisecond keeps the other tasks alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ospbridge.errors import RemoteProtocolError
from ospbridge.session.spinning import Spinning
from ospbridge.transport.udp import LARGEST_DATAGRAM

if TYPE_CHECKING:
    import socket

    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["TrioLink"]

T = TypeVar("T")
SPINS: Final = 100
"""Tries of a receive before it waits, at most: some 50 us in which no other task runs."""
IDLE: Final = 0.01
"""A link that rested longer than this many seconds first reads what came meanwhile."""
CHECKPOINT_EVERY: Final = 0.001
"""Seconds between checkpoints while datagrams keep coming."""


class TrioLink:
    """Runs exchanges to their end. The socket is non-blocking and connected to the handler at ``port``."""

    def __init__(
        self, sock: socket.socket, machine: ClientMachine, *, port: int, spin: bool, trace: TraceWriter | None
    ) -> None:
        self._socket = sock
        self._machine = machine
        self._port = port
        self._trace = trace
        self._spinning = Spinning(SPINS, enabled=spin)
        self._touched = trio.current_time()
        self._checked = 0.0

    async def run(self, exchange: Exchange[T]) -> T:
        """The exchange's result, or its error. A checkpoint; when cancelled the exchange is interrupted."""
        machine = self._machine
        now = trio.current_time()
        if now - self._touched > IDLE:
            self.drain()
        try:
            await self._checkpoint(now)
            machine.begin(exchange, now)
            while not machine.finished:
                if machine.outgoing:
                    self._send_all()
                data = await self._receive(machine.deadline)
                now = trio.current_time()
                if data is None:
                    machine.handle_timer(now)
                else:
                    self._take(data, now)
            if machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            machine.handle_refused(now)
        except BaseException as error:
            exchange.close()
            machine.interrupt(error)
            raise
        self._touched = now
        return machine.result()  # type: ignore[no-any-return]  # what the exchange returned

    async def _checkpoint(self, now: float) -> None:
        if now - self._checked > CHECKPOINT_EVERY:
            await trio.lowlevel.checkpoint()
            self._checked = trio.current_time()
        else:
            await trio.lowlevel.checkpoint_if_cancelled()

    def drain(self) -> None:
        """Take in what came while no exchange was under way, without waiting."""
        try:
            while True:
                try:
                    data = self._socket.recv(LARGEST_DATAGRAM)
                except BlockingIOError:
                    break
                self._take(data, trio.current_time())
            if self._machine.outgoing:
                self._send_all()
        except ConnectionRefusedError:
            self._machine.handle_refused(trio.current_time())
        self._touched = trio.current_time()

    async def wait_readable(self) -> None:
        """Until something comes unasked."""
        await trio.lowlevel.wait_readable(self._socket)

    def take_early(self, datagrams: list[bytes]) -> None:
        """What the handler sent before the socket was connected to it."""
        for data in datagrams:
            self._take(data, trio.current_time())

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

    async def _receive(self, deadline: float | None) -> bytes | None:
        """The next datagram, or None when ``deadline`` has come."""
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
        with trio.move_on_at(deadline):
            while True:
                try:
                    return receive(LARGEST_DATAGRAM)
                except BlockingIOError:
                    await trio.lowlevel.wait_readable(self._socket)
                    self._checked = trio.current_time()
        return None
