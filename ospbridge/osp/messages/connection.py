"""Connecting, leaving, restarting the communication: OSP 1.1, sections 4.1 and 4.2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ospbridge.osp.codes import PROTOCOL_MAJOR, PROTOCOL_MINOR, Code
from ospbridge.osp.messages.base import BYTE, INTEGER, Message, check_field
from ospbridge.osp.profile import InitForm
from ospbridge.osp.wire import INT, Reader

__all__ = ["End", "EndAck", "Init", "InitAck", "ResetCommunication", "ResetCommunicationAck"]


@dataclass(frozen=True, eq=False)
class _Versioned(Message):
    """INIT and its answer: two version numbers, as integers or as single bytes."""

    major: int = PROTOCOL_MAJOR
    minor: int = PROTOCOL_MINOR
    form: InitForm = InitForm.INTS

    def __post_init__(self) -> None:
        kind = INTEGER if self.form is InitForm.INTS else BYTE
        check_field(type(self).__name__, "major", kind, self.major)
        check_field(type(self).__name__, "minor", kind, self.minor)

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
