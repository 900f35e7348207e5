"""One connection's messages, seen from the daemon: what has come is taken out, what finds no room is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.hub.framing import Incoming, encode
from ospbridge.hub.replies import LONGEST_HOLD, Held, Refusal

if TYPE_CHECKING:
    import socket

    from ospbridge.daemon.hub.recurrence import LoneStep
    from ospbridge.hub.replies import HubReply

__all__ = ["PATIENCE", "HubStream"]

PATIENCE: Final = 10.0
"""Seconds for a client to say who it is, and to take a reply."""
MORE: Final = 64
"""Bytes that are asked for beyond a request that is known: with any of them there is more to read."""


class HubStream:
    """Over a non-blocking socket, which ``close`` closes."""

    __slots__ = ("_incoming", "_outgoing", "_socket", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.unsent = bytearray()
        """What found no room."""
        self._socket = sock
        self._incoming = Incoming()
        self._outgoing = bytearray()

    @property
    def empty(self) -> bool:
        """Nothing was received that was not taken out."""
        return self._incoming.empty

    def message(self) -> memoryview | None:
        """The next message, where it is there, valid until the next call.

        Raises ConnectionResetError at the end of the stream, RemoteProtocolError.
        """
        incoming = self._incoming
        message = None if incoming.empty else incoming.next_message()
        while message is None:
            try:
                count = self._socket.recv_into(incoming.space())
            except BlockingIOError:
                return None
            if not count:
                raise ConnectionResetError
            message = incoming.take(count)
        return message

    def action(self, lone: LoneStep) -> bytes | None:
        """What the next message gives, where it is that step, and came alone. Else ``message`` has what came.

        Raises BlockingIOError where nothing came, ConnectionResetError at the end of the stream.
        """
        if not self._incoming.empty:
            return None
        data = self._socket.recv(lone.size + MORE)
        if len(data) == lone.size and data.startswith(lone.head):
            return data[len(lone.head) :]
        if not data:
            raise ConnectionResetError
        self._incoming.put(data)
        return None

    async def wait_readable(self) -> None:
        await trio.lowlevel.wait_readable(self._socket)

    def put(self, reply: HubReply | bytearray) -> bool:
        """Send a reply, or one that is written already; False where not all of it found room. Raises OSError."""
        if type(reply) is bytearray:
            outgoing = reply
        else:
            assert not isinstance(reply, bytearray)
            outgoing = self._outgoing
            try:
                encode(reply, outgoing)
            except LocalProtocolError as error:
                encode(Refusal.of(error), outgoing)
        unsent = self.unsent
        if unsent:
            unsent += outgoing
            return False
        try:
            sent = self._socket.send(outgoing)
        except BlockingIOError:
            sent = 0
        if sent == len(outgoing):
            return True
        unsent += memoryview(outgoing)[sent:]
        return False

    async def send(self, reply: HubReply | bytearray) -> None:
        """All of it. Raises OSError, TooSlowError."""
        if not self.put(reply):
            await self.send_rest()

    async def send_rest(self) -> None:
        """The client does not read fast enough. Raises OSError, TooSlowError."""
        unsent = self.unsent
        with trio.fail_after(PATIENCE):
            while unsent:
                try:
                    del unsent[: self._socket.send(unsent)]
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)

    def tell_held(self, seconds: float, reason: str) -> None:
        """Tell the client, which waits for a reply, that it may take longer: its deadline counts from then on."""
        notice = bytearray()
        encode(Held(min(seconds, LONGEST_HOLD), reason), notice)
        # A client that waits has read all there was, so that a notice this small finds room; if not, it goes first
        # when the reply goes.
        try:
            sent = self._socket.send(notice) if not self.unsent else 0
        except BlockingIOError:
            sent = 0
        except (OSError, ConfigurationError):
            # Whoever reads the stream next learns that it has ended.
            return
        self.unsent += notice[sent:]

    def close(self) -> None:
        trio.lowlevel.notify_closing(self._socket)
        self._socket.close()
