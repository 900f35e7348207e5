"""Every command and reply of OSP 1.1 as a frozen dataclass with ``encode`` and ``decode``.

Layouts: OSP 1.1, sections 4.1 to 4.7. A class lists its fields with their wire types in ``LAYOUT``; only messages
with vectors or two forms write their codec out. Validation happens on construction, so that what exists can be sent.
Messages are equal when their bytes are.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.osp.codes import DATAGRAM_END, PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.profile import InitForm
from ospbridge.osp.wire import (
    END,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    Reader,
    encode_floats,
    encode_ints,
    encode_string,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

BYTE, INTEGER, REAL, TEXT = "byte", "int", "float", "string"


@dataclass(frozen=True, eq=False)
class Message:
    """Base of all messages."""

    CODE: ClassVar[Code]
    LAYOUT: ClassVar[tuple[tuple[str, str], ...]] = ()

    def __post_init__(self) -> None:
        for name, kind in self.LAYOUT:
            _check(type(self).__name__, name, kind, getattr(self, name))

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


def _check(owner: str, name: str, kind: str, value: object) -> None:
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


# --- connection, section 4.1 and 4.2 -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Versioned(Message):
    """INIT and its answer: two version numbers, as integers or as single bytes."""

    major: int = PROTOCOL_MAJOR
    minor: int = PROTOCOL_MINOR
    form: InitForm = InitForm.INTS

    def __post_init__(self) -> None:
        kind = INTEGER if self.form is InitForm.INTS else BYTE
        _check(type(self).__name__, "major", kind, self.major)
        _check(type(self).__name__, "minor", kind, self.minor)

    def _body(self) -> bytes:
        if self.form is InitForm.INTS:
            return INT.pack(self.major) + INT.pack(self.minor)
        return bytes((self.major, self.minor))

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        if reader.left >= 8:
            return cls(reader.integer("major"), reader.integer("minor"), InitForm.INTS)
        return cls(reader.byte("major"), reader.byte("minor"), InitForm.BYTES)


@dataclass(frozen=True, eq=False)
class Init(_Versioned):
    CODE = Code.INIT_COMMUNICATION


@dataclass(frozen=True, eq=False)
class InitAck(_Versioned):
    CODE = Code.INIT_COMMUNICATION_ACK


@dataclass(frozen=True, eq=False)
class End(Message):
    CODE = Code.END_COMMUNICATION


@dataclass(frozen=True, eq=False)
class EndAck(Message):
    CODE = Code.END_COMMUNICATION_ACK


@dataclass(frozen=True, eq=False)
class ResetCommunication(Message):
    CODE = Code.RESET_COMMUNICATION


@dataclass(frozen=True, eq=False)
class ResetCommunicationAck(Message):
    CODE = Code.RESET_COMMUNICATION_ACK


# --- agents, section 4.3 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GetAgentOverview(Message):
    CODE = Code.GET_AGENT_OVERVIEW


@dataclass(frozen=True, eq=False)
class AgentOverview(Message):
    CODE = Code.AGENT_OVERVIEW
    LAYOUT = (("agents", INTEGER),)

    agents: int


@dataclass(frozen=True, eq=False)
class AgentOverviewNext(Message):
    CODE = Code.AGENT_OVERVIEW_NEXT
    LAYOUT = (("index", INTEGER), ("agent_id", INTEGER), ("type", TEXT), ("available", BYTE), ("name", TEXT))

    index: int
    agent_id: int
    type: str
    available: int
    name: str


@dataclass(frozen=True, eq=False)
class AgentOverviewAck(Message):
    CODE = Code.AGENT_OVERVIEW_ACK


@dataclass(frozen=True, eq=False)
class GetAgentInfo(Message):
    CODE = Code.GET_AGENT_INFO
    LAYOUT = (("agent_id", INTEGER),)

    agent_id: int


@dataclass(frozen=True, eq=False)
class AgentInfo(Message):
    CODE = Code.AGENT_INFO
    LAYOUT = (
        ("agent_id", INTEGER),
        ("inputs", INTEGER),
        ("outputs", INTEGER),
        ("infos", INTEGER),
        ("name", TEXT),
    )

    agent_id: int
    inputs: int
    outputs: int
    infos: int
    name: str


@dataclass(frozen=True, eq=False)
class AgentInfoNext(Message):
    CODE = Code.AGENT_INFO_NEXT
    LAYOUT = (("index", INTEGER), ("min", REAL), ("max", REAL), ("name", TEXT))

    index: int
    min: float
    max: float
    name: str


@dataclass(frozen=True, eq=False)
class AgentInfoAck(Message):
    CODE = Code.AGENT_INFO_ACK


@dataclass(frozen=True, eq=False)
class RegisterForAgent(Message):
    CODE = Code.REGISTER_FOR_AGENT
    LAYOUT = (("agent_id", INTEGER),)

    agent_id: int


@dataclass(frozen=True, eq=False)
class RegisterForAgentAck(Message):
    """``status``: 1 registered; 0 unknown or taken."""

    CODE = Code.REGISTER_FOR_AGENT_ACK
    LAYOUT = (("agent_id", INTEGER), ("status", BYTE))

    agent_id: int
    status: int


@dataclass(frozen=True, eq=False)
class DeregisterFromAgent(Message):
    CODE = Code.DEREGISTER_FROM_AGENT
    LAYOUT = (("agent_id", INTEGER),)

    agent_id: int


@dataclass(frozen=True, eq=False)
class DeregisterFromAgentAck(Message):
    """``status``: 1 done (or never controlled, in the document), 0 failed, 2 unknown."""

    CODE = Code.DEREGISTER_FROM_AGENT_ACK
    LAYOUT = (("agent_id", INTEGER), ("status", BYTE))

    agent_id: int
    status: int


# --- events, section 4.4 -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class RegisterForEvent(Message):
    CODE = Code.REGISTER_FOR_EVENT
    LAYOUT = (("name", TEXT),)

    name: str


@dataclass(frozen=True, eq=False)
class RegisterForEventAck(Message):
    """``event_id`` is 0 for an unknown event."""

    CODE = Code.REGISTER_FOR_EVENT_ACK
    LAYOUT = (("event_id", INTEGER),)

    event_id: int


@dataclass(frozen=True, eq=False)
class DeregisterFromEvent(Message):
    CODE = Code.DEREGISTER_FROM_EVENT
    LAYOUT = (("event_id", INTEGER),)

    event_id: int


@dataclass(frozen=True, eq=False)
class DeregisterFromEventAck(Message):
    CODE = Code.DEREGISTER_FROM_EVENT_ACK
    LAYOUT = (("event_id", INTEGER),)

    event_id: int


# --- variables, section 4.5 ----------------------------------------------------------------------------------------


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
    """Listed in the document's appendix; no exchange uses it and no known server awaits it."""

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
class _ValueIdList(Message):
    """A count and that many value ids. ``announced`` is the count as sent, where a server cut the list."""

    ids: tuple[int, ...]
    announced: int | None = None

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for value in self.ids:
            _check(owner, "ids", INTEGER, value)
        if self.announced is not None:
            _check(owner, "announced", INTEGER, self.announced)

    def _body(self) -> bytes:
        return INT.pack(len(self.ids) if self.announced is None else self.announced) + encode_ints(self.ids)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        count = reader.count("number of values")
        ids = reader.ints(count, "value ids")
        return cls(ids, announced=count if len(ids) != count else None)


@dataclass(frozen=True, eq=False)
class RegisterForValue(_ValueIdList):
    CODE = Code.REGISTER_FOR_VALUE


@dataclass(frozen=True, eq=False)
class RegisterForValueAck(_ValueIdList):
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
class DeregisterFromValue(_ValueIdList):
    CODE = Code.DEREGISTER_FROM_VALUE


@dataclass(frozen=True, eq=False)
class DeregisterFromValueAck(_ValueIdList):
    CODE = Code.DEREGISTER_FROM_VALUE_ACK


# --- reset and steps, section 4.6 and 4.7 --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ResetSimulation(Message):
    """``seed`` 0 means "don't care"."""

    CODE = Code.RESET_SIMULATION
    LAYOUT = (("seed", INTEGER),)

    seed: int


@dataclass(frozen=True, eq=False)
class ResetSimulationAck(Message):
    CODE = Code.RESET_SIMULATION_ACK


@dataclass(frozen=True, eq=False)
class ResetSimulationCompleted(Message):
    """Code 75: the client's answer in the document, the server's notification in practice."""

    CODE = Code.RESET_SIMULATION_COMPLETED


@dataclass(frozen=True, eq=False)
class ResetSimulationCompletedAck(Message):
    """Code 76: the server's notification in the document, the client's answer in practice."""

    CODE = Code.RESET_SIMULATION_COMPLETED_ACK


@dataclass(frozen=True, eq=False)
class NextSimulationStep(Message):
    """``inputs``: float32[n_inputs], in the order of the agent's info."""

    CODE = Code.NEXT_SIMULATION_STEP

    agent_id: int
    inputs: NDArray[np.float32]

    def __post_init__(self) -> None:
        _check("NextSimulationStep", "agent_id", INTEGER, self.agent_id)
        if getattr(self.inputs, "ndim", None) != 1:
            raise LocalProtocolError(
                f"NextSimulationStep.inputs must be a one-dimensional array of float32, got {self.inputs!r}"
            )

    def _body(self) -> bytes:
        return INT.pack(self.agent_id) + INT.pack(len(self.inputs)) + encode_floats(self.inputs)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        agent_id = reader.integer("agent id")
        return cls(agent_id, reader.floats(reader.count("number of inputs"), "inputs"))


@dataclass(frozen=True, eq=False)
class NextSimulationStepAck(Message):
    CODE = Code.NEXT_SIMULATION_STEP_ACK
    LAYOUT = (("agent_id", INTEGER),)

    agent_id: int


_COMPLETED: Final = struct.Struct("<Biiiii")


@dataclass(frozen=True, eq=False, slots=True)
class StepCompleted(Message):
    """One agent's share of a completed step.

    ``outputs``: float32[n], ``infos``: float32[m]; views of the datagram, not writeable. ``events``: local event ids.
    ``observed``: how many VALUE datagrams follow. ``announced`` is (outputs, infos, events) as announced, where the
    server cut the datagram.
    """

    CODE = Code.NEXT_SIMULATION_STEP_COMPLETED

    agent_id: int
    outputs: NDArray[np.float32]
    infos: NDArray[np.float32]
    events: tuple[int, ...] = ()
    observed: int = 0
    announced: tuple[int, int, int] | None = field(default=None)

    def __post_init__(self) -> None:
        """Nothing is checked here: this is the one message of the step path."""

    def _body(self) -> bytes:
        outputs, infos, events = self.announced or (len(self.outputs), len(self.infos), len(self.events))
        return (
            _COMPLETED.pack(self.CODE, self.agent_id, outputs, infos, events, self.observed)[1:]
            + encode_floats(self.outputs)
            + encode_floats(self.infos)
            + encode_ints(self.events)
        )

    @classmethod
    def decode(cls, data: bytes, *, cut: bool = False) -> Self:
        size = len(data)
        if size >= 21:
            code, agent_id, outputs, infos, events, observed = _COMPLETED.unpack_from(data)
            if code == cls.CODE and outputs >= 0 and infos >= 0 and events == 0 and observed == 0:
                length = 21 + 4 * (outputs + infos)
                if size == length or (size == length + 1 and data[-1] == DATAGRAM_END):
                    floats = np.frombuffer(data, "<f4", outputs + infos, 21)
                    return cls(agent_id, floats[:outputs], floats[outputs:])
        return super(StepCompleted, cls).decode(data, cut=cut)

    @classmethod
    def _read(cls, reader: Reader) -> Self:
        agent_id = reader.integer("agent id")
        counts = (
            reader.count("number of outputs"),
            reader.count("number of infos"),
            reader.count("number of events"),
        )
        observed = reader.count("number of observed values")
        outputs = reader.floats(counts[0], "outputs")
        infos = reader.floats(counts[1], "infos")
        events = reader.ints(counts[2], "event ids")
        return cls(agent_id, outputs, infos, events, observed, counts if reader.missing else None)


@dataclass(frozen=True, eq=False)
class StepCompletedAck(Message):
    CODE = Code.NEXT_SIMULATION_STEP_COMPLETED_ACK
    LAYOUT = (("agent_id", INTEGER),)

    agent_id: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """A reply that the server cut at its datagram limit.

    ``received`` and ``announced`` count the 4-byte values of a vector message; ``announced`` is None where a string
    was cut, whose length no server tells, and ``received`` then counts bytes.
    """

    message: Message
    received: int
    announced: int | None


REQUESTS: Final[dict[int, type[Message]]] = {
    int(message.CODE): message
    for message in (
        Init,
        End,
        ResetCommunication,
        GetAgentOverview,
        AgentOverviewAck,
        GetAgentInfo,
        AgentInfoAck,
        RegisterForAgent,
        DeregisterFromAgent,
        RegisterForEvent,
        DeregisterFromEvent,
        GetValueIds,
        ValueInfoAck,
        GetValue,
        SetValue,
        RegisterForValue,
        DeregisterFromValue,
        ResetSimulation,
        ResetSimulationCompleted,
        ResetSimulationCompletedAck,
        NextSimulationStep,
        StepCompletedAck,
    )
}
"""What a client sends."""

REPLIES: Final[dict[int, type[Message]]] = {
    int(message.CODE): message
    for message in (
        InitAck,
        EndAck,
        ResetCommunicationAck,
        AgentOverview,
        AgentOverviewNext,
        AgentInfo,
        AgentInfoNext,
        RegisterForAgentAck,
        DeregisterFromAgentAck,
        RegisterForEventAck,
        DeregisterFromEventAck,
        ValueIds,
        ValueInfo,
        ValueContent,
        SetValueAck,
        RegisterForValueAck,
        DeregisterFromValueAck,
        ResetSimulationAck,
        ResetSimulationCompleted,
        ResetSimulationCompletedAck,
        NextSimulationStepAck,
        StepCompleted,
    )
}
"""What a server sends. Codes 75 and 76 stand in both tables: which side sends which depends on the server."""


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
    return _decode_cut(kind, data)


def _class_of(data: bytes, table: dict[int, type[Message]], role: str) -> type[Message]:
    if not data:
        raise RemoteProtocolError(f"expected a {role}, got an empty datagram", data=data, offset=0)
    try:
        return table[data[0]]
    except KeyError:
        raise RemoteProtocolError(f"code {data[0]} is no {role} of OSP 1.1", data=data, offset=0) from None


def _decode_cut(kind: type[Message], data: bytes) -> Message | Truncated:
    """A datagram that reached the server's limit: whole all the same, or cut in a vector or a string."""
    if not issubclass(kind, StepCompleted | _ValueIdList):
        # A string was cut: its zero was kept, the end byte was not. With the end byte the message is whole.
        if data[-1] == DATAGRAM_END:
            return kind.decode(data)
        return Truncated(kind.decode(data, cut=True), len(data), None)
    # A vector was cut: up to three bytes behind the last whole value are the end byte, or the rest of another value.
    reader = Reader(data, end=1 + (len(data) - 1) // 4 * 4, cut=True)
    message = kind._read(reader)  # noqa: SLF001  # of our own base class
    if message.announced is None:
        return kind.decode(data)
    if isinstance(message, StepCompleted):
        received = len(message.outputs) + len(message.infos) + len(message.events)
        return Truncated(message, received, sum(message.announced))
    return Truncated(message, len(message.ids), message.announced)
