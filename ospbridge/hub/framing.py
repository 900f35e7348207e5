"""Messages as bytes on a stream: each as msgpack behind its length, 4 bytes little-endian.

A receive buffer is handed out to be read into, so that a message that came whole is decoded where it lies. It grows
only with what really arrived: an announced length allocates nothing.

What this module must not do: touch a socket.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.hub.replies import HubReply
from ospbridge.hub.requests import VERSION, HubRequest

__all__ = ["HEAD", "LARGEST_MESSAGE", "Incoming", "decode_reply", "decode_request", "encode"]

HEAD: Final = struct.Struct("<I")
LARGEST_MESSAGE: Final = 64 * 1024 * 1024
FIRST_BUFFER: Final = 64 * 1024
_announced: Final = HEAD.unpack_from
_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[HubRequest]] = msgspec.msgpack.Decoder(HubRequest)
_replies: Final[msgspec.msgpack.Decoder[HubReply]] = msgspec.msgpack.Decoder(HubReply)
_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Before 0.21 msgspec's errors were no ValueError."""


def encode(message: HubRequest | HubReply, into: bytearray, *, largest: int = LARGEST_MESSAGE) -> None:
    """Make ``into`` the message with its length, ready to be sent. Raises LocalProtocolError for one too long."""
    _encoder.encode_into(message, into, HEAD.size)
    length = len(into) - HEAD.size
    if length > largest:
        raise LocalProtocolError(
            f"a message of {length} bytes is longer than the hub's limit of {largest}",
            hint="drive fewer agents with one connection",
        )
    HEAD.pack_into(into, 0, length)


def decode_request(data: bytes | bytearray | memoryview) -> HubRequest:
    """A client's message. Raises RemoteProtocolError for anything else."""
    try:
        return _requests.decode(data)
    except _REFUSED as error:
        raise _wrong("a request", data, error) from None


def decode_reply(data: bytes | bytearray | memoryview) -> HubReply:
    """The daemon's message. Raises RemoteProtocolError for anything else."""
    try:
        return _replies.decode(data)
    except _REFUSED as error:
        raise _wrong("a reply", data, error) from None


def _wrong(what: str, data: bytes | bytearray | memoryview, error: Exception) -> RemoteProtocolError:
    """A decoder of msgspec names the place within the message, but rarely the byte."""
    return RemoteProtocolError(
        f"expected {what} of the hub, version {VERSION}: {error}",
        data=bytes(data),
        offset=0,
        hint="only environments of ospbridge speak to a hub; use the same version on both sides",
    )


class Incoming:
    """The receiving half of a stream: ``space`` is read into, ``received`` says how much, ``next_message`` takes out.

    ``take`` is the two latter in one, which is quick where one message came, and came whole.

    A message is a view into the buffer, valid until the next call of ``space``.
    """

    __slots__ = ("_buffer", "_end", "_largest", "_start", "_view")

    def __init__(self, *, largest: int = LARGEST_MESSAGE) -> None:
        self._largest = largest
        self._buffer = bytearray(FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    @property
    def empty(self) -> bool:
        """Nothing was received that was not taken out."""
        return self._start == self._end

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._start == self._end:
            self._start = self._end = 0
            return self._view
        if self._end == len(self._buffer):
            self._make_room()
        return self._view[self._end :]

    def _make_room(self) -> None:
        """Move what is there to the front, of a buffer twice as long if it fills this one."""
        left = self._end - self._start
        size = len(self._buffer) if self._start else 2 * len(self._buffer)
        buffer = bytearray(size)
        buffer[:left] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, left

    def put(self, data: bytes) -> None:
        """A few bytes that were read elsewhere, while this was ``empty``."""
        self.space()[: len(data)] = data
        self.received(len(data))

    def received(self, count: int) -> None:
        """``count`` bytes were read into ``space``."""
        self._end += count

    def take(self, count: int) -> memoryview | None:
        """``count`` bytes were read into ``space``; the next whole message, as ``next_message`` has it."""
        if (
            not self._end
            and HEAD.size < count <= self._largest
            and _announced(self._buffer)[0] == count - HEAD.size
        ):
            self._start = self._end = count
            return self._view[HEAD.size : count]
        self._end += count
        return self.next_message()

    def next_message(self) -> memoryview | None:
        """The next whole message, or None. Raises RemoteProtocolError for an announced length above the limit."""
        start = self._start
        there = self._end - start
        if there < HEAD.size:
            return None
        (length,) = HEAD.unpack_from(self._buffer, start)
        if length > self._largest:
            raise RemoteProtocolError(
                f"a message of {length} bytes was announced, the limit is {self._largest}",
                data=bytes(self._view[start : min(self._end, start + 48)]),
                offset=0,
                hint="only environments of ospbridge speak to a hub",
            )
        if there < HEAD.size + length:
            return None
        self._start = start + HEAD.size + length
        return self._view[start + HEAD.size : self._start]
