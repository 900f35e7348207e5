"""What all messages share: fields with wire types, and how they become bytes (OSP 1.1, section 3).

A class lists its fields with their wire types in ``LAYOUT``; only messages with vectors or two forms write their
codec out. Validation happens on construction, so that what exists can be sent. Messages are equal when their bytes
are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import ClassVar, Self

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.codes import Code
from ospbridge.osp.wire import END, FLOAT, INT, INT_MAX, INT_MIN, Reader, encode_string

__all__ = ["BYTE", "INTEGER", "REAL", "TEXT", "Message", "check_field"]

BYTE, INTEGER, REAL, TEXT = "byte", "int", "float", "string"
"""Wire types, as ``LAYOUT`` names them."""


@dataclass(frozen=True, eq=False)
class Message:
    """Base of all messages."""

    CODE: ClassVar[Code]
    LAYOUT: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __post_init__(self) -> None:
        for name, kind in self.LAYOUT:
            check_field(type(self).__name__, name, kind, getattr(self, name))

    def encode(self, *, end: bool = False) -> bytes:
        """The datagram; with ``end`` followed by byte 120."""
        return bytes((self.CODE,)) + self._body() + (END if end else b"")

    def _body(self) -> bytes:
        parts = []
        for name, kind in self.LAYOUT:
            value = getattr(self, name)
            if kind == INTEGER:
                parts.append(INT.pack(value))
            elif kind == TEXT:
                parts.append(encode_string(value))
            elif kind == BYTE:
                parts.append(bytes((value,)))
            else:
                parts.append(FLOAT.pack(value))
        return b"".join(parts)

    @classmethod
    def decode(cls, data: bytes, *, cut: bool = False) -> Self:
        """The message in ``data``; with ``cut`` fields may be missing at the end (see ``decode_reply``)."""
        if data[:1] != bytes((cls.CODE,)):
            raise RemoteProtocolError(f"expected {cls.CODE.name}, code {int(cls.CODE)}", data=data, offset=0)
        reader = Reader(data, cut=cut)
        message = cls._read(reader)
        reader.finish()
        return message

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        values: list[int | float | str] = []
        for name, kind in cls.LAYOUT:
            if kind == INTEGER:
                values.append(reader.integer(name))
            elif kind == TEXT:
                values.append(reader.string(name))
            elif kind == BYTE:
                values.append(reader.byte(name))
            else:
                values.append(reader.float32(name))
        return cls(*values)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Message)
        return self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


def check_field(owner: str, name: str, kind: str, value: object) -> None:
    """Raise LocalProtocolError, naming the field, for a value that its wire type cannot hold."""
    if kind == INTEGER:
        fits = isinstance(value, int) and INT_MIN <= value <= INT_MAX
        wanted = "a 32-bit integer"
    elif kind == BYTE:
        fits = isinstance(value, int) and 0 <= value <= 255
        wanted = "a byte"
    elif kind == TEXT:
        fits = isinstance(value, str)
        wanted = "a string"
        if isinstance(value, str):
            try:
                encode_string(value)
            except LocalProtocolError as error:
                raise LocalProtocolError(f"{owner}.{name}: {error.message}", hint=error.hint) from None
    else:
        fits = isinstance(value, float | int)
        wanted = "a number that a 32-bit float holds"
        if isinstance(value, float | int):
            try:
                FLOAT.pack(value)
            except (OverflowError, struct.error):  # too large a float, too large an integer
                fits = False
    if not fits:
        raise LocalProtocolError(f"{owner}.{name} must be {wanted}, got {value!r}")
