"""The four data types of OSP datagrams: bytes, integers, floats and strings (OSP 1.1, section 3).

Integers and floats are 4 bytes, little-endian; strings end with a zero byte. Every other byte sequence is a string, and
comes back unchanged (see ``text``).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.counts import numbered
from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.osp.text import decode_text, encode_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["END", "INT", "Reader", "encode_floats", "encode_ints", "encode_string"]

INT: Final = struct.Struct("<i")
FLOAT: Final = struct.Struct("<f")
END: Final = bytes([DATAGRAM_END])
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1


def encode_string(text: str) -> bytes:
    """``text`` with its terminating zero. Raises LocalProtocolError for what a string cannot hold."""
    try:
        raw = encode_text(text)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"cannot send {text!r}: {text[error.start]!r} is half of a character and has no bytes",
            hint="OSP strings are sent as UTF-8; give the whole character",
        ) from None
    if b"\0" in raw:
        raise LocalProtocolError(f"cannot send {text!r}: a zero byte ends an OSP string")
    return raw + b"\0"


def encode_ints(values: Sequence[int]) -> bytes:
    """32-bit integers behind one another, without a count."""
    return struct.pack(f"<{len(values)}i", *values)


def encode_floats(values: NDArray[np.float32]) -> bytes:
    """The bytes of float32[n], without a count."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


class Reader:
    """Takes a datagram apart from left to right; any misfit raises RemoteProtocolError with its offset.

    With ``cut`` the sender is known to cut its datagrams: fields behind the cut are then reported by ``missing``
    instead of being an error, and vectors come back shorter than announced.
    """

    __slots__ = ("_end", "cut", "data", "missing", "offset")

    def __init__(self, data: bytes, *, end: int | None = None, cut: bool = False) -> None:
        self.data = data
        self.offset = 1
        self.cut = cut
        self.missing = False
        self._end = len(data) if end is None else end

    @property
    def left(self) -> int:
        return self._end - self.offset

    def error(self, message: str, offset: int | None = None) -> RemoteProtocolError:
        return RemoteProtocolError(message, data=self.data, offset=self.offset if offset is None else offset)

    def _need(self, size: int, what: str) -> bool:
        if self.left >= size:
            return True
        if self.cut:
            self.missing = True
            self.offset = self._end
            return False
        raise self.error(f"expected {what} of {numbered(size, 'byte')}, {max(self.left, 0)} left")

    def byte(self, what: str) -> int:
        if not self._need(1, what):
            return 0
        value = self.data[self.offset]
        self.offset += 1
        return value

    def integer(self, what: str) -> int:
        if not self._need(4, what):
            return 0
        (value,) = INT.unpack_from(self.data, self.offset)
        self.offset += 4
        return int(value)

    def count(self, what: str) -> int:
        """A number of things that follow: never negative."""
        at = self.offset
        value = self.integer(what)
        if value < 0:
            raise self.error(f"expected {what}, a count of 0 or more, got {value}", at)
        return value

    def float32(self, what: str) -> float:
        if not self._need(4, what):
            return 0.0
        (value,) = FLOAT.unpack_from(self.data, self.offset)
        self.offset += 4
        return float(value)

    def string(self, what: str) -> str:
        end = self.data.find(0, self.offset, self._end)
        if end < 0:
            if not self.cut:
                raise self.error(f"expected {what}, a string with its terminating zero")
            self.missing = True
            end = self._end
        text = decode_text(self.data[self.offset : end])
        self.offset = min(end + 1, self._end)
        return text

    def floats(self, count: int, what: str) -> NDArray[np.float32]:
        """float32[count], a view of the datagram's bytes."""
        count = self._fitting(count, what)
        if not count:
            return _NO_FLOATS
        values = np.frombuffer(self.data, dtype="<f4", count=count, offset=self.offset)
        self.offset += 4 * count
        return values

    def ints(self, count: int, what: str) -> tuple[int, ...]:
        count = self._fitting(count, what)
        values = struct.unpack_from(f"<{count}i", self.data, self.offset)
        self.offset += 4 * count
        return values

    def _fitting(self, count: int, what: str) -> int:
        """``count``, checked against what is there before anything is made of it."""
        if 4 * count <= self.left:
            return count
        if not self.cut:
            raise self.error(f"expected {count} {what} in {numbered(4 * count, 'byte')}, {self.left} left")
        self.missing = True
        return self.left // 4

    def finish(self) -> bool:
        """Check that nothing but the optional end byte is left; says whether it was there."""
        if self.left == 0:
            return False
        if self.left == 1 and self.data[self.offset] == DATAGRAM_END:
            return True
        raise self.error(f"expected the end of the datagram, {numbered(self.left, 'byte')} left")


_NO_FLOATS: Final[NDArray[np.float32]] = np.empty(0, dtype="<f4")
