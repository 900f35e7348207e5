"""One stream to a daemon's hub: the address as users write it, the connection, and requests with their replies.

What goes wrong on a stream is told as it is, OSError and RemoteProtocolError; ``HubClient`` finds the words for its
users.
"""

from __future__ import annotations

import select
import socket
import ssl
from contextlib import suppress
from math import ceil
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.errors import ConfigurationError, HubNotFound
from ospbridge.hub.framing import Incoming, decode_reply
from ospbridge.hub.replies import Held, HubReply
from ospbridge.observe.runtime import found_hub, hubs
from ospbridge.transport.admission import squatter
from ospbridge.transport.spinning import Spinning
from ospbridge.transport.tls import TlsAddress, TlsFiles, connect_tls, parse_tls
from ospbridge.transport.unix import connect_unix, parse_unix

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HubAddress", "HubExchange", "hub_address", "hub_not_found"]

R = TypeVar("R")
HubAddress = Path | TlsAddress
SPINS: Final = 200
"""Tries of a receive before it sleeps, at most: some 100 us."""
CORES: Final = 3
"""The environment's, the daemon's and the simulator's: with two, spinning here more than doubles the mean step."""


def hub_address(hub: str | None, tls: TlsFiles | None) -> HubAddress:
    """That of ``unix:PATH`` or ``tls://HOST:PORT``; None: the default. Raises ConfigurationError."""
    # What is no string is told as well how it is written.
    text = "" if hub is None else str(hub)
    if text.startswith("tls:"):
        return TlsAddress(parse_tls(text), tls or TlsFiles.of(None, None, None))
    if tls is not None:
        raise ConfigurationError(
            "certificates were given, but the bridge is on this host", hint="name the hub as tls://HOST:PORT"
        )
    if "://" in text:
        raise ConfigurationError(
            f"{text!r} is not a hub's address",
            hint="write unix:PATH for a daemon on this host, tls://HOST:PORT for one on another",
        )
    if hub is not None:
        return parse_unix(text)
    path = found_hub()
    # No daemon of ours listens in a directory that somebody else has made.
    if (user := squatter(path.parent)) is not None:
        raise ConfigurationError(
            f"the hub would be in {path.parent}, which belongs to user {user}: whatever listens there is not believed",
            hint="set XDG_RUNTIME_DIR to a directory of your own, the same as for the daemon, or name the hub",
        )
    return path


def hub_not_found(address: HubAddress, error: OSError) -> HubNotFound:
    """The error for an address at which nobody could be connected to."""
    told, hint = f"no daemon listens at {address} ({error.strerror or error})", ""
    if isinstance(error, PermissionError):
        told = f"this user may not use the daemon's hub at {address}"
        hint = "join the group that owns it, or run the daemon as this user"
    elif isinstance(address, TlsAddress):
        hint = "start it there with `ospbridge connect --listen HOST:PORT`, or look whether a firewall is between"
    elif isinstance(error, BlockingIOError):
        told = f"the daemon at {address} lets nobody in: more wait already than it takes"
        hint = "see whether it still runs, `ps` shows its state, or start fewer environments at once"
    elif (there := hubs()) and address not in there:
        # One that a dead daemon of several simulators left is named as it should be: those beside it are of others.
        hint = f"name the simulator's own hub: {', '.join(f'unix:{path}' for path in there)}"
    return HubNotFound(told, hint=hint)


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

    @classmethod
    def connect(cls, address: HubAddress, timeout: float, *, spin: bool) -> HubExchange:
        """With the daemon at ``address``; one on another host has ``timeout`` seconds to accept.

        Raises OSError where nobody listens, and ConfigurationError for certificates that do not fit.
        """
        sock = connect_unix(address) if isinstance(address, Path) else connect_tls(address, timeout)
        return cls(sock, spin=spin)

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
        for _ in range(spinning.tries or self._min_tries):
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

    def hang_up(self, how: int = socket.SHUT_WR) -> None:
        """Say that nothing more comes: the daemon frees the agents and ends the stream, unless it stands still.

        SHUT_RDWR also wakes whoever waits for one that does.
        """
        with suppress(OSError):
            self._socket.shutdown(how)

    def drain(self, seconds: float) -> None:
        """Behind ``hang_up``: until the daemon has ended the stream. Never raises."""
        until = monotonic() + seconds
        thrown_away = memoryview(bytearray(4096))
        with suppress(OSError, ConfigurationError):
            while self._receive(thrown_away, monotonic(), until, seconds):
                pass

    def close(self) -> None:
        self._socket.close()
