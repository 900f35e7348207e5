"""Every command and reply of OSP 1.1 as a frozen dataclass (sections 4 and 5).

A class lists its fields once, with their types on the wire; how it is encoded, decoded and checked follows from that.
On the wire a number stands where its field is listed, a string too. A vector has its count there; its values follow
behind all other fields. Validation happens on construction, so that what exists can be sent. Messages are equal when
their bytes are.

Whoever compares bytes instead of decoding them takes heads and sizes from the same declarations::

    StepCompleted.pack(agent_id, n_outputs, n_infos, 0, 0)  # how such a completion begins, byte for byte
    StepCompleted.length(n_outputs + n_infos)  # its length, without the end byte
    NextSimulationStep.HEAD.size  # where the inputs stand in a step request
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, dataclass_transform, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.codes import DATAGRAM_END, PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm
from ospbridge.osp.wire import BYTE, END, FLOAT, INT, INT_MAX, INT_MIN, Reader, encode_string

# --- types on the wire ---------------------------------------------------------------------------------------------


class Wire(Enum):
    """The type of a field on the wire."""

    BYTE = "a byte"
    INTEGER = "a 32-bit integer"
    COUNT = "a 32-bit integer of 0 or more"
    REAL = "a number that a 32-bit float holds"
    TEXT = "a string"
    FLOATS = "a one-dimensional array of float32"
    INTEGERS = "a tuple of 32-bit integers"


Byte: TypeAlias = Annotated[int, Wire.BYTE]
Integer: TypeAlias = Annotated[int, Wire.INTEGER]
Count: TypeAlias = Annotated[int, Wire.COUNT]
Real: TypeAlias = Annotated[float, Wire.REAL]
Text: TypeAlias = Annotated[str, Wire.TEXT]
Floats: TypeAlias = Annotated[NDArray[np.float32], Wire.FLOATS]
Integers: TypeAlias = Annotated[tuple[int, ...], Wire.INTEGERS]

_NUMBERS: Final = {Wire.BYTE: BYTE, Wire.INTEGER: INT, Wire.REAL: FLOAT}
_VECTORS: Final = (Wire.FLOATS, Wire.INTEGERS)
_FORMATS: Final = {Wire.BYTE: "B", Wire.REAL: "f", Wire.TEXT: "%ds"}
"""Of struct; integers, counts, and vectors, which have their count there, are "i"."""


def _check(where: str, kind: Wire, value: object) -> None:
    """Raise LocalProtocolError for a value that its type on the wire cannot hold."""
    if kind is Wire.TEXT and isinstance(value, str):
        try:
            encode_string(value)
        except LocalProtocolError as error:
            raise LocalProtocolError(f"{where}: {error.message}", hint=error.hint) from None
    elif not _fits(kind, value):
        raise LocalProtocolError(f"{where} must be {kind.value}, got {value!r}")


def _fits(kind: Wire, value: object) -> bool:
    if kind is Wire.FLOATS:
        return getattr(value, "ndim", None) == 1
    if kind is Wire.INTEGERS:
        return isinstance(value, tuple) and all(_fits(Wire.INTEGER, one) for one in value)
    if kind is Wire.REAL:
        try:
            FLOAT.pack(value)
        except (OverflowError, struct.error):  # too large a float; too large an integer, or no number
            return False
        return True
    low, high = _RANGES.get(kind, (INT_MIN, INT_MAX))
    return isinstance(value, int) and low <= value <= high


_RANGES: Final = {Wire.BYTE: (0, 255), Wire.COUNT: (0, INT_MAX)}

# --- what all messages share ---------------------------------------------------------------------------------------

REQUESTS: Final[dict[int, type[Message]]] = {}
"""What a client sends, by code."""
REPLIES: Final[dict[int, type[Message]]] = {}
"""What a server sends. Codes 75 and 76 stand in both tables: which side sends which depends on the server."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Message:
    """Base of all messages. A subclass with a code is a frozen dataclass of its annotated fields."""

    CODE: ClassVar[Code]
    LAYOUT: ClassVar[tuple[tuple[str, Wire], ...]]
    """The fields on the wire, in their order."""
    HEAD: ClassVar[struct.Struct]
    """The code and the numbers and counts before the first string or the values of vectors."""
    FORMAT: ClassVar[str]
    """The same and what is between strings, whose lengths are to be filled in."""

    def __init_subclass__(cls, code: Code | None = None) -> None:
        dataclass(frozen=True, eq=False)(cls)
        hints = get_type_hints(cls, include_extras=True)
        cls.LAYOUT = tuple(
            (name, hint.__metadata__[0])
            for name, hint in hints.items()
            if isinstance(getattr(hint, "__metadata__", (None,))[0], Wire)
        )
        cls.FORMAT = "<B" + "".join(_FORMATS.get(kind, "i") for _, kind in cls.LAYOUT)
        cls.HEAD = struct.Struct(cls.FORMAT.partition("%")[0])
        if code is not None:
            cls.CODE = code
            for base, table in ((Request, REQUESTS), (Reply, REPLIES)):
                if issubclass(cls, base):
                    table[int(code)] = cls

    def __post_init__(self) -> None:
        for name, kind in self.LAYOUT:
            _check(f"{type(self).__name__}.{name}", kind, getattr(self, name))

    @classmethod
    def pack(cls, *values: float | bytes) -> bytes:
        """The datagram up to the values of its vectors, of fields as they are on the wire; nothing is checked.

        Vectors are given by their counts, strings as bytes with their zero.
        """
        sizes = tuple(len(value) for value in values if isinstance(value, bytes))
        return struct.pack(cls.FORMAT % sizes, cls.CODE, *values)

    @classmethod
    def length(cls, values: int) -> int:
        """Bytes of a datagram whose vectors have so many values together, without the end byte."""
        return cls.HEAD.size + 4 * values

    def encode(self, *, end: bool = False) -> bytes:
        """The datagram; with ``end`` followed by byte 120."""
        return self._encode() + (END if end else b"")

    def _encode(self) -> bytes:
        values = (getattr(self, name) for name, _ in self.LAYOUT)
        return self.pack(*(encode_string(value) if isinstance(value, str) else value for value in values))

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
        return cls(*(_read_field(reader, name, kind) for name, kind in cls.LAYOUT))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Message)
        return self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


def _read_field(reader: Reader, name: str, kind: Wire) -> Any:
    """A number, a string, or the count of a vector."""
    if kind is Wire.TEXT:
        return reader.string(name)
    layout = _NUMBERS.get(kind)
    return reader.count(name) if layout is None else reader.number(layout, name)


class Request(Message):
    """What a client sends."""


class Reply(Message):
    """What a server sends."""


class _Vectors(Message):
    """A message with vectors. ``announced``: their counts as sent, where the server cut the datagram."""

    announced: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _encode(self) -> bytes:
        values = {name: getattr(self, name) for name, _ in self.LAYOUT}
        vectors = self.vectors()
        values.update(zip(vectors, self.announced or map(len, vectors.values()), strict=True))
        return self.pack(*values.values()) + b"".join(
            np.ascontiguousarray(vector, "<i4" if isinstance(vector, tuple) else "<f4").tobytes()
            for vector in vectors.values()
        )

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        values = {name: _read_field(reader, name, kind) for name, kind in cls.LAYOUT}
        counts = tuple(values[name] for name, kind in cls.LAYOUT if kind in _VECTORS)
        for name, kind in cls.LAYOUT:
            if kind is Wire.FLOATS:
                values[name] = reader.floats(values[name], name)
            elif kind is Wire.INTEGERS:
                values[name] = reader.ints(values[name], name)
        return cls(**values, announced=counts if reader.missing else None)

    def vectors(self) -> dict[str, NDArray[np.float32] | tuple[int, ...]]:
        """The vectors by name, in their order."""
        return {name: getattr(self, name) for name, kind in self.LAYOUT if kind in _VECTORS}


@dataclass(frozen=True, slots=True)
class Truncated:
    """A reply that the server cut at its datagram limit.

    ``received`` and ``announced`` count the 4-byte values of a vector message; ``announced`` is None where a string
    was cut, whose length no server tells, and ``received`` then counts bytes.
    """

    message: Message
    received: int
    announced: int | None


# --- connecting, leaving, restarting the communication: sections 4.1 and 4.2 ---------------------------------------


class _Versioned(Message):
    """INIT and its answer: two version numbers, as integers or as single bytes."""

    major: Integer = PROTOCOL_MAJOR
    minor: Integer = PROTOCOL_MINOR
    form: InitForm = InitForm.INTS

    def __post_init__(self) -> None:
        kind = Wire.INTEGER if self.form is InitForm.INTS else Wire.BYTE
        _check(f"{type(self).__name__}.major", kind, self.major)
        _check(f"{type(self).__name__}.minor", kind, self.minor)

    def _encode(self) -> bytes:
        if self.form is InitForm.INTS:
            return super()._encode()
        return bytes((self.CODE, self.major, self.minor))

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        ints = reader.left >= 2 * INT.size
        layout = INT if ints else BYTE
        return cls(
            int(reader.number(layout, "major")),
            int(reader.number(layout, "minor")),
            InitForm.INTS if ints else InitForm.BYTES,
        )


class Init(_Versioned, Request, code=Code.INIT_COMMUNICATION): ...


class InitAck(_Versioned, Reply, code=Code.INIT_COMMUNICATION_ACK): ...


class End(Request, code=Code.END_COMMUNICATION): ...


class EndAck(Reply, code=Code.END_COMMUNICATION_ACK): ...


class ResetCommunication(Request, code=Code.RESET_COMMUNICATION): ...


class ResetCommunicationAck(Reply, code=Code.RESET_COMMUNICATION_ACK): ...


# --- agents: section 4.3 -------------------------------------------------------------------------------------------


class GetAgentOverview(Request, code=Code.GET_AGENT_OVERVIEW): ...


class AgentOverview(Reply, code=Code.AGENT_OVERVIEW):
    agents: Integer


class AgentOverviewNext(Reply, code=Code.AGENT_OVERVIEW_NEXT):
    index: Integer
    agent_id: Integer
    type: Text
    available: Byte
    name: Text


class AgentOverviewAck(Request, code=Code.AGENT_OVERVIEW_ACK): ...


class GetAgentInfo(Request, code=Code.GET_AGENT_INFO):
    agent_id: Integer


class AgentInfo(Reply, code=Code.AGENT_INFO):
    """``inputs``, ``outputs`` and ``infos`` are how many AgentInfoNext follow of each."""

    agent_id: Integer
    inputs: Integer
    outputs: Integer
    infos: Integer
    name: Text


class AgentInfoNext(Reply, code=Code.AGENT_INFO_NEXT):
    index: Integer
    min: Real
    max: Real
    name: Text


class AgentInfoAck(Request, code=Code.AGENT_INFO_ACK): ...


class RegisterForAgent(Request, code=Code.REGISTER_FOR_AGENT):
    agent_id: Integer


class RegisterForAgentAck(Reply, code=Code.REGISTER_FOR_AGENT_ACK):
    """``status``: 1 registered; 0 unknown or taken."""

    agent_id: Integer
    status: Byte


class DeregisterFromAgent(Request, code=Code.DEREGISTER_FROM_AGENT):
    agent_id: Integer


class DeregisterFromAgentAck(Reply, code=Code.DEREGISTER_FROM_AGENT_ACK):
    """``status``: 1 done (or never controlled, in the document), 0 failed, 2 unknown."""

    agent_id: Integer
    status: Byte


# --- events: section 4.4 -------------------------------------------------------------------------------------------


class RegisterForEvent(Request, code=Code.REGISTER_FOR_EVENT):
    name: Text


class RegisterForEventAck(Reply, code=Code.REGISTER_FOR_EVENT_ACK):
    """``event_id`` is 0 for an unknown event."""

    event_id: Integer


class DeregisterFromEvent(Request, code=Code.DEREGISTER_FROM_EVENT):
    event_id: Integer


class DeregisterFromEventAck(Reply, code=Code.DEREGISTER_FROM_EVENT_ACK):
    event_id: Integer


# --- variables of the value repository: section 4.5 ----------------------------------------------------------------


class GetValueIds(Request, code=Code.GET_VALUE_IDS):
    expression: Text


class ValueIds(Reply, code=Code.VALUE_IDS):
    found: Integer


class ValueInfo(Reply, code=Code.VALUE_INFO):
    index: Integer
    value_id: Integer
    type: Text
    name: Text


class ValueInfoAck(Request, code=Code.VALUE_INFO_ACK):
    """Listed in the document's appendix; no exchange there uses it, and no known server awaits it.

    Sent where a server is silent behind a list of values, since one may be built so.
    """


class GetValue(Request, code=Code.GET_VALUE):
    value_id: Integer


class ValueContent(Reply, code=Code.VALUE):
    """UDP_VALUE: the answer to GET_VALUE, and an observed value behind a completion."""

    value_id: Integer
    content: Text


class SetValue(Request, code=Code.SET_VALUE):
    value_id: Integer
    content: Text


class SetValueAck(Reply, code=Code.SET_VALUE_ACK):
    """``status``: 1 set, 0 not parsed, 2 unknown id."""

    value_id: Integer
    status: Byte


class RegisterForValue(_Vectors, Request, code=Code.REGISTER_FOR_VALUE):
    ids: Integers


class RegisterForValueAck(_Vectors, Reply, code=Code.REGISTER_FOR_VALUE_ACK):
    """Ids that were found, 0 for the others. The document sends no count, real servers do: both are read."""

    ids: Integers
    counted: bool = True

    def answered(self, asked: int) -> tuple[int, ...]:
        """The ids, where ``asked`` of them were asked for.

        The bytes alone cannot tell a count from a first id that equals it: (1, 7) without a count reads as one id, 7.
        """
        return (len(self.ids), *self.ids) if self.counted and len(self.ids) == asked - 1 else self.ids

    def _encode(self) -> bytes:
        data = super()._encode()
        return data if self.counted else data[:1] + data[self.HEAD.size :]

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
        return cls(reader.ints(whole, "ids"), counted=False)


class DeregisterFromValue(_Vectors, Request, code=Code.DEREGISTER_FROM_VALUE):
    ids: Integers


class DeregisterFromValueAck(_Vectors, Reply, code=Code.DEREGISTER_FROM_VALUE_ACK):
    ids: Integers


# --- resets and steps: sections 4.6 and 4.7 ------------------------------------------------------------------------


class ResetSimulation(Request, code=Code.RESET_SIMULATION):
    """``seed`` 0 means "don't care"."""

    seed: Integer


class ResetSimulationAck(Reply, code=Code.RESET_SIMULATION_ACK): ...


class ResetSimulationCompleted(Request, Reply, code=Code.RESET_SIMULATION_COMPLETED):
    """Code 75: the client's answer in the document, the server's notification in practice."""


class ResetSimulationCompletedAck(Request, Reply, code=Code.RESET_SIMULATION_COMPLETED_ACK):
    """Code 76: the server's notification in the document, the client's answer in practice."""


class NextSimulationStep(_Vectors, Request, code=Code.NEXT_SIMULATION_STEP):
    """``inputs``: float32[n_inputs], in the order of the agent's info."""

    agent_id: Integer
    inputs: Floats


class NextSimulationStepAck(Reply, code=Code.NEXT_SIMULATION_STEP_ACK):
    agent_id: Integer


class StepCompleted(_Vectors, Reply, code=Code.NEXT_SIMULATION_STEP_COMPLETED):
    """One agent's share of a completed step.

    ``outputs``: float32[n_outputs], ``infos``: float32[n_infos]; views of the datagram, not writeable. ``events``:
    local event ids. ``observed``: how many VALUE datagrams follow.
    """

    agent_id: Integer
    outputs: Floats
    infos: Floats
    events: Integers = ()
    observed: Count = 0

    def __post_init__(self) -> None:
        """Nothing is checked: a client reads one a step, and the reader has checked what it could."""

    @classmethod
    def decode(cls, data: bytes, *, cut: bool = False) -> Self:
        """The message in ``data``: the usual one at once, in a quarter of the time."""
        if len(data) >= cls.HEAD.size:
            code, agent_id, outputs, infos, events, observed = cls.HEAD.unpack_from(data)
            surplus = len(data) - cls.length(outputs + infos)
            whole = not surplus or (surplus == 1 and data[-1] == DATAGRAM_END)
            if whole and code == cls.CODE and min(outputs, infos) >= 0 and not (events or observed):
                floats = np.frombuffer(data, "<f4", outputs + infos, cls.HEAD.size)
                return cls(agent_id, floats[:outputs], floats[outputs:])
        return super().decode(data, cut=cut)


class StepCompletedAck(Request, code=Code.NEXT_SIMULATION_STEP_COMPLETED_ACK):
    agent_id: Integer


# --- from bytes to messages ----------------------------------------------------------------------------------------


def decode_request(data: bytes) -> Message:
    """What a client sent. Raises RemoteProtocolError for anything that is not exactly one request."""
    return _class_of(data, REQUESTS, "request").decode(data)


def decode_reply(data: bytes, *, limit: int | None = None) -> Message | Truncated:
    """What a server sent. Raises RemoteProtocolError for anything that is not exactly one reply.

    ``limit`` is the length at which this server cuts its datagrams (Profile.datagram_limit): one that reached it
    decodes into Truncated where something is missing.
    """
    kind = _class_of(data, REPLIES, "reply")
    if limit is None or len(data) < limit - 2:
        return kind.decode(data)
    if not issubclass(kind, _Vectors):
        # A cut string keeps its zero and loses the end byte. With the end byte the message is whole.
        if data[-1] == DATAGRAM_END:
            return kind.decode(data)
        return Truncated(kind.decode(data, cut=True), len(data), None)
    # Behind the last whole value of a cut vector are the end byte, or up to three bytes of another value.
    message = kind._read(Reader(data, end=1 + (len(data) - 1) // 4 * 4, cut=True))  # noqa: SLF001  # our own
    if message.announced is None:
        return kind.decode(data)
    return Truncated(message, sum(map(len, message.vectors().values())), sum(message.announced))


def _class_of(data: bytes, table: dict[int, type[Message]], role: str) -> type[Message]:
    if not data:
        raise RemoteProtocolError(f"expected a {role}, got an empty datagram", data=data, offset=0)
    try:
        return table[data[0]]
    except KeyError:
        raise RemoteProtocolError(f"code {data[0]} is no {role} of OSP 1.1", data=data, offset=0) from None
