"""One connection's messages, seen from the daemon: what has come is taken out, what finds no room is kept.

They come through its socket, and where a lane was opened beside it through that: the answer goes the request's way.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.hub.framing import HEAD, Incoming, encode
from ospbridge.hub.refusals import refusal
from ospbridge.hub.replies import LONGEST_HOLD, Held, LaneOpened
from ospbridge.transport.unix import peer_user

if TYPE_CHECKING:
    from ospbridge.daemon.hub.recurrence import LoneStep
    from ospbridge.hub.replies import HubReply
    from ospbridge.transport.lane import DaemonLane

__all__ = ["PATIENCE", "HubStream"]

PATIENCE: Final = 10.0
"""Seconds for a client to say who it is, and to take a reply."""
MORE: Final = 64
"""Bytes that are asked for beyond a request that is known: with any of them there is more to read."""


class HubStream:
    """Over a non-blocking socket, which ``close`` closes."""

    __slots__ = ("_by_lane", "_incoming", "_outgoing", "_socket", "_taken", "lane", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.unsent = bytearray()
        """What found no room."""
        self._socket = sock
        self._incoming = Incoming()
        self._outgoing = bytearray()
        self.lane: DaemonLane | None = None
        """Whoever opened it closes it."""
        self._by_lane = False
        """So the latest request came, and its answer goes."""
        self._taken: bytes | None = None
        """A request from there, behind its length, that is still to be looked at."""

    @property
    def empty(self) -> bool:
        """Nothing was received that was not taken out."""
        return self._incoming.empty and self._taken is None

    def message(self) -> memoryview | None:
        """The next message, where it is there, valid until the next call.

        Raises ConnectionResetError at the end of the stream, RemoteProtocolError.
        """
        lane = self.lane
        if lane is not None:
            taken, self._taken = self._taken or lane.take(), None
            self._by_lane = taken is not None
            if taken is not None:
                return memoryview(taken)[HEAD.size :]
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
        lane = self.lane
        if lane is not None:
            taken = lane.take()
            if taken is None or len(taken) != lone.size or not taken.startswith(lone.head):
                self._taken = taken
                return None
            self._by_lane = True
            return taken[len(lone.head) :]
        data = self._socket.recv(lone.size + MORE)
        if len(data) == lone.size and data.startswith(lone.head):
            return data[len(lone.head) :]
        if not data:
            raise ConnectionResetError
        self._incoming.put(data)
        return None

    @property
    def of_our_user(self) -> bool:
        """So the client connected, to a hub on this host."""
        return peer_user(self._socket) == os.geteuid()

    def open_lane(self, lane: DaemonLane) -> bool:
        """Answer that there is one; False where that could not be sent, and there is none."""
        opened = bytearray()
        encode(LaneOpened(), opened)
        if self.unsent:
            return False
        try:
            if not socket.send_fds(self._socket, [opened], lane.files):
                return False
        except OSError:
            # There is no room, or there are too many descriptors under way; or the client is gone, which is told soon.
            return False
        lane.given()
        self.lane = lane
        return True

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
                encode(refusal(error), outgoing)
        if self._by_lane:
            assert self.lane is not None
            if self.lane.put(outgoing):
                return True
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
        request = self.lane.request if self.lane is not None and self._by_lane else 0
        encode(Held(min(seconds, LONGEST_HOLD), reason, request), notice)
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
