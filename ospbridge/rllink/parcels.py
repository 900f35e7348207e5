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

PIECE: Final = 5000
"""Bytes for which zlib does not let go of Python's lock: to have it again costs a thread beside busy ones more."""
FEW: Final = 64 * 1024
"""Bytes that are worth that."""
_CHECKSUM: Final = struct.Struct("<I")


def packed_up(fragment: EpisodeFragment) -> bytes:
    """The parcel. Whoever sends the fragment in the same dialect has it written already."""
    MSGPACK.write(fragment)
    body = memoryview(MSGPACK.encode(Episodes((fragment,))))[HEADER_LENGTH:]
    return b"".join((_CHECKSUM.pack(_checksum(body)), body))


def unpacked(parcel: bytes) -> EpisodeFragment:
    """The fragment in a parcel. Raises ConfigurationError for one that is damaged."""
    body = memoryview(parcel)[_CHECKSUM.size :]
    if len(parcel) < _CHECKSUM.size or _checksum(body) != _CHECKSUM.unpack_from(parcel)[0]:
        raise _damaged("its checksum is wrong")
    try:
        message = MSGPACK.decode(body)
    except RemoteProtocolError as error:
        raise _damaged(error.message) from None
    if not isinstance(message, Episodes) or len(message.fragments) != 1:
        raise _damaged("it holds no episode")
    return message.fragments[0]


def _checksum(body: memoryview) -> int:
    """CRC-32 of it."""
    if len(body) > FEW:
        return zlib.crc32(body)
    checksum = 0
    for at in range(0, len(body), PIECE):
        checksum = zlib.crc32(body[at : at + PIECE], checksum)
    return checksum


def _damaged(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"a spooled episode is damaged: {why}",
        hint="it is left out; see whether the disk is sound",
    )
