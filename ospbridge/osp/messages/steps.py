"""Reset and steps: OSP 1.1, sections 4.6 and 4.7."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.osp.codes import DATAGRAM_END, Code
from ospbridge.osp.messages.base import INTEGER, Message, check_field
from ospbridge.osp.wire import INT, Reader, encode_floats, encode_ints

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "NextSimulationStep",
    "NextSimulationStepAck",
    "ResetSimulation",
    "ResetSimulationAck",
    "ResetSimulationCompleted",
    "ResetSimulationCompletedAck",
    "StepCompleted",
    "StepCompletedAck",
]


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
        check_field("NextSimulationStep", "agent_id", INTEGER, self.agent_id)
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
