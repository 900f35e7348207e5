"""Variables of the value repository: OSP 1.1, section 4.5."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ospbridge.osp.codes import Code
from ospbridge.osp.messages.base import BYTE, INTEGER, TEXT, Message, check_field
from ospbridge.osp.wire import INT, Reader, encode_ints

__all__ = [
    "DeregisterFromValue",
    "DeregisterFromValueAck",
    "GetValue",
    "GetValueIds",
    "RegisterForValue",
    "RegisterForValueAck",
    "SetValue",
    "SetValueAck",
    "ValueContent",
    "ValueIdList",
    "ValueIds",
    "ValueInfo",
    "ValueInfoAck",
]


@dataclass(frozen=True, eq=False)
class GetValueIds(Message):
    CODE = Code.GET_VALUE_IDS
    LAYOUT = (("expression", TEXT),)

    expression: str


@dataclass(frozen=True, eq=False)
class ValueIds(Message):
    CODE = Code.VALUE_IDS
    LAYOUT = (("found", INTEGER),)

    found: int


@dataclass(frozen=True, eq=False)
class ValueInfo(Message):
    CODE = Code.VALUE_INFO
    LAYOUT = (("index", INTEGER), ("value_id", INTEGER), ("type", TEXT), ("name", TEXT))

    index: int
    value_id: int
    type: str
    name: str


@dataclass(frozen=True, eq=False)
class ValueInfoAck(Message):
    """Listed in the document's appendix; no exchange there uses it, and no known server awaits it.

    Sent where a server is silent behind a list of values, since one may be built so.
    """

    CODE = Code.VALUE_INFO_ACK


@dataclass(frozen=True, eq=False)
class GetValue(Message):
    CODE = Code.GET_VALUE
    LAYOUT = (("value_id", INTEGER),)

    value_id: int


@dataclass(frozen=True, eq=False)
class ValueContent(Message):
    """UDP_VALUE: the answer to GET_VALUE, and an observed value behind a completion."""

    CODE = Code.VALUE
    LAYOUT = (("value_id", INTEGER), ("content", TEXT))

    value_id: int
    content: str


@dataclass(frozen=True, eq=False)
class SetValue(Message):
    CODE = Code.SET_VALUE
    LAYOUT = (("value_id", INTEGER), ("content", TEXT))

    value_id: int
    content: str


@dataclass(frozen=True, eq=False)
class SetValueAck(Message):
    """``status``: 1 set, 0 not parsed, 2 unknown id."""

    CODE = Code.SET_VALUE_ACK
    LAYOUT = (("value_id", INTEGER), ("status", BYTE))

    value_id: int
    status: int


@dataclass(frozen=True, eq=False)
class ValueIdList(Message):
    """A count and that many value ids. ``announced`` is the count as sent, where a server cut the list."""

    ids: tuple[int, ...]
    announced: int | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for value in self.ids:
            check_field(owner, "ids", INTEGER, value)
        if self.announced is not None:
            check_field(owner, "announced", INTEGER, self.announced)

    def _body(self) -> bytes:
        return INT.pack(len(self.ids) if self.announced is None else self.announced) + encode_ints(self.ids)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        count = reader.count("number of values")
        ids = reader.ints(count, "value ids")
        return cls(ids, announced=count if len(ids) != count else None)


@dataclass(frozen=True, eq=False)
class RegisterForValue(ValueIdList):
    CODE = Code.REGISTER_FOR_VALUE


@dataclass(frozen=True, eq=False)
class RegisterForValueAck(ValueIdList):
    """Ids that were found, 0 for the others. The document sends no count, real servers do: both are read."""

    CODE = Code.REGISTER_FOR_VALUE_ACK

    counted: bool = True

    def answered(self, asked: int) -> tuple[int, ...]:
        """The ids, where ``asked`` of them were asked for.

        The bytes alone cannot tell a count from a first id that equals it: (1, 7) without a count reads as one id, 7.
        """
        return (len(self.ids), *self.ids) if self.counted and len(self.ids) == asked - 1 else self.ids

    def _body(self) -> bytes:
        return super()._body() if self.counted else encode_ints(self.ids)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        # Without a count the length is 4 x n, with one 4 + 4 x n; told apart by whether the first integer is the
        # number of integers behind it, or more than that where the server cuts. What this cannot tell, ``answered``
        # can. A lone id 0 reads as a count of none, which means the same: nothing found.
        whole = reader.left // 4
        if whole:
            (first,) = INT.unpack_from(reader.data, reader.offset)
            if first == whole - 1 or (reader.cut and first >= whole):
                return super()._read(reader)
        return cls(reader.ints(whole, "value ids"), counted=False)


@dataclass(frozen=True, eq=False)
class DeregisterFromValue(ValueIdList):
    CODE = Code.DEREGISTER_FROM_VALUE


@dataclass(frozen=True, eq=False)
class DeregisterFromValueAck(ValueIdList):
    CODE = Code.DEREGISTER_FROM_VALUE_ACK
