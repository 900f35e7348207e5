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
from ospbridge.osp.wire import END, INT, Reader, encode_string

# --- types on the wire ---------------------------------------------------------------------------------------------


class Wire(Enum):
    """The type of a field on the wire: what it holds, and its format of ``struct``; a vector has its count there."""

    BYTE = "a byte", "B"
    INTEGER = "a 32-bit integer", "i"
    COUNT = "a 32-bit integer of 0 or more", "i"
    REAL = "a number that a 32-bit float holds", "f"
    TEXT = "a string", "%ds"
    FLOATS = "a one-dimensional array of float32", "i"
    INTEGERS = "a tuple of 32-bit integers", "i"

    def __init__(self, words: str, format: str) -> None:  # noqa: A002  # the word of struct
        self.words = words
        self.format = format


Byte: TypeAlias = Annotated[int, Wire.BYTE]
Integer: TypeAlias = Annotated[int, Wire.INTEGER]
Count: TypeAlias = Annotated[int, Wire.COUNT]
Real: TypeAlias = Annotated[float, Wire.REAL]
Text: TypeAlias = Annotated[str, Wire.TEXT]
Floats: TypeAlias = Annotated[NDArray[np.float32], Wire.FLOATS]
Integers: TypeAlias = Annotated[tuple[int, ...], Wire.INTEGERS]

_VECTORS: Final = (Wire.FLOATS, Wire.INTEGERS)
_NUMBERS: Final = {kind: struct.Struct("<" + kind.format) for kind in Wire if kind.format != "%ds"}


def _check(where: str, kind: Wire, value: object) -> None:
    """Raise LocalProtocolError for a value that its type on the wire cannot hold."""
    if not _fits(kind, value):
        raise LocalProtocolError(f"{where} must be {kind.words}, got {value!r}")


def _fits(kind: Wire, value: object) -> bool:
    if kind is Wire.TEXT:
        return isinstance(value, str) and bool(
            encode_string(value)
        )  # which raises by itself for what it cannot hold
    if kind is Wire.FLOATS:
        return getattr(value, "ndim", None) == 1
    if kind is Wire.INTEGERS:
        return isinstance(value, tuple) and all(_fits(Wire.INTEGER, one) for one in value)
    try:
        _NUMBERS[kind].pack(value)
    except (OverflowError, struct.error):  # too large a float; too large an integer, or no number
        return False
    return True


# --- what all messages share ---------------------------------------------------------------------------------------

REQUESTS: Final[dict[int, type[Message]]] = {}
"""What a client sends, by code."""
REPLIES: Final[dict[int, type[Message]]] = {}
"""What a server sends. Codes 75 and 76 stand in both tables: which side sends which depends on the server."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
class Message:
    """Base of all messages. A subclass is a frozen dataclass of its annotated fields."""

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
        kinds = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in hints.items()}
        cls.LAYOUT = tuple((name, kind) for name, kind in kinds.items() if isinstance(kind, Wire))
        cls.FORMAT = "<B" + "".join(kind.format for _, kind in cls.LAYOUT)
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
    def decode(cls, data: bytes) -> Self:
        """The message in ``data``; raises RemoteProtocolError where that is not exactly one of this class."""
        if data[:1] != bytes((cls.CODE,)):
            raise RemoteProtocolError(f"expected {cls.CODE.name}, code {int(cls.CODE)}", data=data, offset=0)
        reader = Reader(data)
        message = cls._read(reader)
        reader.finish()
        return message

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        return cls(*(_read_field(reader, name, kind) for name, kind in cls.LAYOUT))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.encode() == other.encode()

    def __hash__(self) -> int:
        return hash(self.encode())


def _read_field(reader: Reader, name: str, kind: Wire) -> Any:
    """A number, a string, or the count of a vector."""
    if kind is Wire.TEXT:
        return reader.string(name)
    if kind in (Wire.BYTE, Wire.INTEGER, Wire.REAL):
        return reader.number(_NUMBERS[kind], name)
    return reader.count(name)


class Request(Message):
    """What a client sends."""


class Reply(Message):
    """What a server sends."""


class Vectors(Message):
    """A message with vectors. ``announced``: their counts as sent, where the server cut the datagram."""

    announced: tuple[int, ...] | None = field(default=None, kw_only=True)

    def _encode(self) -> bytes:
        vectors = self.vectors()
        counts = iter(self.announced or map(len, vectors))
        heads = (next(counts) if kind in _VECTORS else getattr(self, name) for name, kind in self.LAYOUT)
        return self.pack(*heads) + b"".join(
            np.ascontiguousarray(vector, "<i4" if isinstance(vector, tuple) else "<f4").tobytes()
            for vector in vectors
        )

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        values = [_read_field(reader, name, kind) for name, kind in cls.LAYOUT]
        counts, there = [], []
        for at, (name, kind) in enumerate(cls.LAYOUT):
            if kind in _VECTORS:
                counts.append(values[at])
                vector = reader.vector("<f4" if kind is Wire.FLOATS else "<i4", values[at], name)
                values[at] = vector if kind is Wire.FLOATS else tuple(vector.tolist())
                there.append(len(vector))
        return cls(*values, announced=None if there == counts else tuple(counts))

    def vectors(self) -> list[NDArray[np.float32] | tuple[int, ...]]:
        """The vectors, in their order."""
        return [getattr(self, name) for name, kind in self.LAYOUT if kind in _VECTORS]


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
        form, kind = InitForm.INTS, Wire.INTEGER
        if reader.left < 2 * INT.size:
            form, kind = InitForm.BYTES, Wire.BYTE
        return cls(_read_field(reader, "major", kind), _read_field(reader, "minor", kind), form)


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


class RegisterForValue(Vectors, Request, code=Code.REGISTER_FOR_VALUE):
    ids: Integers


class RegisterForValueAck(Vectors, Reply, code=Code.REGISTER_FOR_VALUE_ACK):
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
        return cls(tuple(reader.vector("<i4", whole, "ids").tolist()), counted=False)


class DeregisterFromValue(Vectors, Request, code=Code.DEREGISTER_FROM_VALUE):
    ids: Integers


class DeregisterFromValueAck(Vectors, Reply, code=Code.DEREGISTER_FROM_VALUE_ACK):
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


class NextSimulationStep(Vectors, Request, code=Code.NEXT_SIMULATION_STEP):
    """``inputs``: float32[n_inputs], in the order of the agent's info."""

    agent_id: Integer
    inputs: Floats


class NextSimulationStepAck(Reply, code=Code.NEXT_SIMULATION_STEP_ACK):
    agent_id: Integer


class StepCompleted(Vectors, Reply, code=Code.NEXT_SIMULATION_STEP_COMPLETED):
    """One agent's share of a completed step.

    ``outputs``: float32[n_outputs], ``infos``: float32[n_infos]; views of the datagram, not writeable. ``events``:
    local event ids. ``observed``: how many VALUE datagrams follow.
    """

    agent_id: Integer
    outputs: Floats
    infos: Floats
    events: Integers = ()
    observed: Count = 0


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
    reader = Reader(data, cut=True)
    if issubclass(kind, Vectors):
        # Behind the last whole value stand the end byte, or up to three bytes of another value.
        message = kind._read(reader)  # noqa: SLF001  # our own
        if message.announced is not None:
            return Truncated(message, sum(map(len, message.vectors())), sum(message.announced))
    elif data[-1] != DATAGRAM_END:
        # A cut string keeps its zero and loses the end byte.
        told = kind._read(reader)  # noqa: SLF001  # our own
        reader.finish()
        return Truncated(told, len(data), None)
    return kind.decode(data)


def _class_of(data: bytes, table: dict[int, type[Message]], role: str) -> type[Message]:
    if not data:
        raise RemoteProtocolError(f"expected a {role}, got an empty datagram", data=data, offset=0)
    try:
        return table[data[0]]
    except KeyError:
        raise RemoteProtocolError(f"code {data[0]} is no {role} of OSP 1.1", data=data, offset=0) from None
