"""Requests and replies out of the bytes of a message."""

from __future__ import annotations

from typing import Final

import msgspec

from ospbridge.errors import RemoteProtocolError
from ospbridge.hub.replies import HubReply
from ospbridge.hub.requests import HubRequest

__all__ = ["VERSION", "decode_reply", "decode_request"]

VERSION: Final = 4
"""Of the requests and replies, as ``Hello`` and ``Welcome`` tell it."""

_REFUSED: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Before 0.21 msgspec's errors were no ValueError."""

_requests: Final[msgspec.msgpack.Decoder[HubRequest]] = msgspec.msgpack.Decoder(HubRequest)
_replies: Final[msgspec.msgpack.Decoder[HubReply]] = msgspec.msgpack.Decoder(HubReply)


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
