"""Fragments as bytes that lie on a disk for a while: a checksum, and then a message of the dialect msgpack.

Whoever sends one may do so in either dialect: a parcel holds all that a fragment does.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.framing import HEADER_LENGTH
from ospbridge.rllink.messages import Episodes

if TYPE_CHECKING:
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["packed_up", "unpacked"]

_CHECKSUM: Final = struct.Struct("<I")


def packed_up(fragment: EpisodeFragment) -> bytes:
    """The parcel. Whoever sends the fragment in the same dialect has it written already."""
    MSGPACK.write(fragment)
    body = memoryview(MSGPACK.encode(Episodes((fragment,))))[HEADER_LENGTH:]
    return b"".join((_CHECKSUM.pack(zlib.crc32(body)), body))


def unpacked(parcel: bytes) -> EpisodeFragment:
    """The fragment in a parcel. Raises ConfigurationError for one that is damaged."""
    body = memoryview(parcel)[_CHECKSUM.size :]
    if len(parcel) < _CHECKSUM.size or zlib.crc32(body) != _CHECKSUM.unpack_from(parcel)[0]:
        raise _damaged("its checksum is wrong")
    try:
        message = MSGPACK.decode(body)
    except RemoteProtocolError as error:
        raise _damaged(error.message) from None
    if not isinstance(message, Episodes) or len(message.fragments) != 1:
        raise _damaged("it holds no episode")
    return message.fragments[0]


def _damaged(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"a spooled episode is damaged: {why}",
        hint="it is left out; see whether the disk is sound",
    )
