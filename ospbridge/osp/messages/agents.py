"""Agents: OSP 1.1, section 4.3."""

from __future__ import annotations

from dataclasses import dataclass

from ospbridge.osp.codes import Code
from ospbridge.osp.messages.base import BYTE, INTEGER, REAL, TEXT, Message

__all__ = [
    "AgentInfo",
    "AgentInfoAck",
    "AgentInfoNext",
    "AgentOverview",
    "AgentOverviewAck",
    "AgentOverviewNext",
    "DeregisterFromAgent",
    "DeregisterFromAgentAck",
    "GetAgentInfo",
    "GetAgentOverview",
    "RegisterForAgent",
    "RegisterForAgentAck",
]


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
