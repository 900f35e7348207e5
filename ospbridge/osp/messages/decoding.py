"""From bytes to messages: by code and direction, whole or cut at a server's limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.codes import DATAGRAM_END
from ospbridge.osp.messages.agents import (
    AgentInfo,
    AgentInfoAck,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewAck,
    AgentOverviewNext,
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    GetAgentInfo,
    GetAgentOverview,
    RegisterForAgent,
    RegisterForAgentAck,
)
from ospbridge.osp.messages.base import Message
from ospbridge.osp.messages.connection import (
    End,
    EndAck,
    Init,
    InitAck,
    ResetCommunication,
    ResetCommunicationAck,
)
from ospbridge.osp.messages.events import (
    DeregisterFromEvent,
    DeregisterFromEventAck,
    RegisterForEvent,
    RegisterForEventAck,
)
from ospbridge.osp.messages.steps import (
    NextSimulationStep,
    NextSimulationStepAck,
    ResetSimulation,
    ResetSimulationAck,
    ResetSimulationCompleted,
    ResetSimulationCompletedAck,
    StepCompleted,
    StepCompletedAck,
)
from ospbridge.osp.messages.values import (
    DeregisterFromValue,
    DeregisterFromValueAck,
    GetValue,
    GetValueIds,
    RegisterForValue,
    RegisterForValueAck,
    SetValue,
    SetValueAck,
    ValueContent,
    ValueIdList,
    ValueIds,
    ValueInfo,
    ValueInfoAck,
)
from ospbridge.osp.wire import Reader

__all__ = ["REPLIES", "REQUESTS", "Truncated", "decode_reply", "decode_request"]


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
    if not issubclass(kind, StepCompleted | ValueIdList):
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
