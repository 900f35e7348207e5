"""Events: OSP 1.1, section 4.4."""

from __future__ import annotations

from dataclasses import dataclass

from ospbridge.osp.codes import Code
from ospbridge.osp.messages.base import INTEGER, TEXT, Message

__all__ = ["DeregisterFromEvent", "DeregisterFromEventAck", "RegisterForEvent", "RegisterForEventAck"]


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
