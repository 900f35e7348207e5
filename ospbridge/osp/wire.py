"""The data types of OSP datagrams: bytes, integers, floats and strings (OSP 1.1, section 3).

Integers and floats are 4 bytes, little-endian; strings end with a zero byte. The document names no encoding of strings
and no format of numbers in them. Strings are read as UTF-8, and byte by byte where they are not, so that every byte
sequence has a text of its own and comes back unchanged: a byte that is no UTF-8 is read as a character for private use,
U+F780 for 0x80 to U+F7FF for 0xff, which can be printed and stored everywhere, unlike Python's lone surrogates.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from numpy.typing import NDArray

INT: Final = struct.Struct("<i")
END: Final = bytes([DATAGRAM_END])
INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1

# --- strings -------------------------------------------------------------------------------------------------------

_PRIVATE: Final = 0xF700
_SURROGATE: Final = 0xDC00
# Not `str.translate`, which takes a hundred times as long for a text that is not ASCII.
_PRIVATE_CHARACTER: Final = re.compile("[\uf780-\uf7ff]")
_SURROGATE_CHARACTER: Final = re.compile("[\udc80-\udcff]")


def decode_text(raw: bytes) -> str:
    """The text of any bytes. No two byte strings have the same one."""
    text = raw.decode("utf-8", "surrogateescape")
    if text.isascii():
        return text
    # A character that would stand for a byte is itself read as its three bytes.
    escaped = _PRIVATE_CHARACTER.sub(
        lambda found: "".join(chr(_PRIVATE + byte) for byte in found[0].encode()), text
    )
    return _SURROGATE_CHARACTER.sub(lambda found: chr(ord(found[0]) - _SURROGATE + _PRIVATE), escaped)


def encode_text(text: str) -> bytes:
    """The bytes that ``text`` was read from. Raises UnicodeEncodeError for half of a surrogate pair."""
    if text.isascii():
        return text.encode()
    with_surrogates = _PRIVATE_CHARACTER.sub(lambda found: chr(ord(found[0]) - _PRIVATE + _SURROGATE), text)
    return with_surrogates.encode("utf-8", "surrogateescape")


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


def number(text: str) -> float:
    """The number that ``text`` is, as a server of any locale prints it. Raises ValueError."""
    # Some print a decimal comma.
    comma = text.count(",") == 1 and "." not in text
    return float(text.replace(",", ".") if comma else text)


# --- datagrams -----------------------------------------------------------------------------------------------------


class Reader:
    """Reads a datagram from left to right; what does not fit raises RemoteProtocolError with its offset.

    With ``cut`` the sender is known to cut its datagrams: fields behind the cut are then 0 or empty, and vectors
    shorter than announced.
    """

    __slots__ = ("cut", "data", "offset")

    def __init__(self, data: bytes, *, cut: bool = False) -> None:
        self.data = data
        self.offset = 1
        self.cut = cut

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self.data) - self.offset

    def error(self, message: str, offset: int | None = None) -> RemoteProtocolError:
        """The error for what stands at ``offset``, or where the reader is."""
        return RemoteProtocolError(message, data=self.data, offset=self.offset if offset is None else offset)

    def number(self, layout: struct.Struct, what: str) -> int | float:
        """One number of that layout."""
        if self.left < layout.size:
            if not self.cut:
                raise self.error(f"expected {what} of {pluralize(layout.size, 'byte')}, {self.left} left")
            self.offset = len(self.data)
            return 0
        (value,) = layout.unpack_from(self.data, self.offset)
        self.offset += layout.size
        return value  # type: ignore[no-any-return]  # what the layout says

    def count(self, what: str) -> int:
        """How many values follow: never negative."""
        at = self.offset
        value = int(self.number(INT, f"number of {what}"))
        if value < 0:
            raise self.error(f"expected number of {what}, a count of 0 or more, got {value}", at)
        return value

    def string(self, what: str) -> str:
        """The text up to the next zero byte."""
        raw, zero, _ = self.data[self.offset :].partition(b"\0")
        if not zero and not self.cut:
            raise self.error(f"expected {what}, a string with its terminating zero")
        self.offset += len(raw) + len(zero)
        return decode_text(raw)

    def vector(self, layout: str, count: int, what: str) -> NDArray[Any]:
        """``count`` values of 4 bytes, a view of the datagram's; fewer behind a cut. Nothing else is allocated."""
        if 4 * count > self.left:
            if not self.cut:
                raise self.error(
                    f"expected {count} {what} in {pluralize(4 * count, 'byte')}, {self.left} left"
                )
            count = self.left // 4
        values: NDArray[Any] = np.ndarray((count,), layout, self.data, self.offset)
        self.offset += 4 * count
        return values

    def finish(self) -> None:
        """Check that nothing but the optional end byte is left."""
        if self.data[self.offset :] not in (b"", END):
            raise self.error(f"expected the end of the datagram, {pluralize(self.left, 'byte')} left")
