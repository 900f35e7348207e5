"""Requests to a daemon and their replies on one stream, for callers that block: framing, time limits, the end.

What goes wrong is told as it is, OSError and RemoteProtocolError; ``HubClient`` finds the words for its users.
"""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.errors import ConfigurationError
from ospbridge.hub.framing import Incoming, decode_reply
from ospbridge.hub.replies import Held, HubReply
from ospbridge.transport.spinning import Spinning

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HubExchange"]

R = TypeVar("R")
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""
CORES: Final = 3
"""The environment's, the daemon's and the simulator's: with two, spinning here more than doubles the mean step."""


class HubExchange:
    """Over a connected, non-blocking socket. Replies have no numbers: whatever interrupts it must end it.

    For one thread at a time, but ``hang_up`` may come from any, and wakes whoever waits.
    """

    def __init__(self, sock: socket.socket, *, spin: bool) -> None:
        self.awaiting_reply = False
        """A reply is still to come."""
        self._socket = sock
        self._incoming = Incoming()
        self._spinning = Spinning(SPINS, enabled=spin, cores=CORES)
        # TLS may hold some already, of which no poll would tell.
        self._min_tries = 1 if isinstance(sock, ssl.SSLSocket) else 0
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        self._poll = poll.poll

    def ask(self, frame: bytearray, limit: float) -> HubReply:
        """Send a request, and return its reply, within ``limit`` seconds each."""
        self.send(frame, limit)
        return self.receive(limit)

    def send(self, frame: bytearray, limit: float) -> None:
        """The first half of an exchange; ``receive`` must follow. Raises TimeoutError, OSError."""
        self.awaiting_reply = True
        try:
            sent = self._socket.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            self._send_rest(memoryview(frame)[sent:], limit)

    def _send_rest(self, rest: memoryview, limit: float) -> None:
        writable = select.poll()
        writable.register(self._socket, select.POLLOUT)
        deadline = monotonic() + limit
        while rest:
            left = deadline - monotonic()
            if left <= 0:
                raise TimeoutError(0, "it does not read")
            writable.poll(ceil(left * 1000))
            with suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]

    def receive(
        self, limit: float, read: Callable[[memoryview], HubReply | R] = decode_reply
    ) -> HubReply | R:
        """The reply, within ``limit`` seconds and those that the daemon asks for; spins before it sleeps.

        ``read`` may make something else of what it knows. Raises TimeoutError, ConnectionResetError at the end of the
        stream, OSError, RemoteProtocolError.
        """
        incoming = self._incoming
        now = monotonic()
        deadline = now + limit
        while True:
            count = self._receive(incoming.space(), now, deadline, limit)
            if not count:
                raise ConnectionResetError(0, "the stream ended")
            message = incoming.take(count)
            while message is not None:
                reply = read(message)
                if not isinstance(reply, Held):
                    self.awaiting_reply = False
                    return reply
                # Somebody else makes the world wait, which is none of the daemon's own delay.
                deadline = monotonic() + reply.seconds + limit
                message = incoming.next_message()
            now = monotonic()

    def _receive(self, space: memoryview, now: float, deadline: float, limit: float) -> int:
        """How many bytes came; 0 at the end. What is there is read before the limit is judged."""
        receive, spinning = self._socket.recv_into, self._spinning
        tries = spinning.tries or self._min_tries
        while tries:
            tries -= 1
            try:
                count = receive(space)
            except BlockingIOError:
                continue
            spinning.paid()
            return count
        asleep = monotonic() if spinning.most else 0.0
        while True:
            self._poll(ceil((deadline - now) * 1000) if now < deadline else 0)
            try:
                count = receive(space)
            except BlockingIOError:
                now = monotonic()
                if now >= deadline:
                    raise TimeoutError(0, f"no reply within {limit:g} s") from None
            else:
                if spinning.most:
                    spinning.in_vain(monotonic() - asleep)
                return count

    def hang_up(self) -> None:
        """Say that nothing more comes: the daemon frees the agents and ends the stream, unless it stands still."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def drain(self, seconds: float) -> None:
        """Behind ``hang_up``: until the daemon has ended the stream. Never raises."""
        until = monotonic() + seconds
        thrown_away = memoryview(bytearray(4096))
        with suppress(OSError, ConfigurationError):
            while self._receive(thrown_away, monotonic(), until, seconds):
                pass

    def abort(self) -> None:
        """Wake whoever waits, though the daemon stands still."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()
