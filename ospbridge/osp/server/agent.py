"""An agent as the server role keeps it: who controls it, its inputs as they arrive, its outputs as they leave.

This is the step path; constant pieces of datagrams are made once. Facts: OSP 1.1, section 4.7.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    from ospbridge.osp.profile import Profile
    from ospbridge.osp.server.handler import Handler
    from ospbridge.osp.world import WorldAgent

__all__ = ["COMPLETED_HEAD", "AgentControl"]

_STEP_SIZE: Final = 9
"""Code, agent id and number of inputs; then the inputs."""
_COMPLETED: Final = struct.Struct("<Biiiii")
_ONE_INT: Final = struct.Struct("<Bi")
COMPLETED_HEAD: Final = _COMPLETED.size


class AgentControl:
    """An agent of the world with who controls it, and its constant pieces of datagrams."""

    __slots__ = ("ack", "agent", "handler", "head", "id", "inputs", "request_size")

    def __init__(self, agent: WorldAgent, agent_id: int, profile: Profile) -> None:
        self.agent = agent
        self.id = agent_id
        self.handler: Handler | None = None
        self.inputs = len(agent.inputs)
        self.request_size = _STEP_SIZE + 4 * self.inputs
        self.ack = _ONE_INT.pack(Code.NEXT_SIMULATION_STEP_ACK, agent_id) + profile.end
        self.head = self.header(0, 0)

    def header(self, events: int, observed: int) -> bytes:
        """The first 21 bytes of a completion."""
        agent = self.agent
        return _COMPLETED.pack(
            Code.NEXT_SIMULATION_STEP_COMPLETED,
            self.id,
            len(agent.outputs),
            len(agent.infos),
            events,
            observed,
        )

    def take_inputs(self, data: bytes, count: int) -> bool:
        """Write a request's inputs, clamped to their range; NaN passes. False if their number is wrong.

        Fewer inputs than the agent has: the others keep their value. Announced but missing floats are read as 0,
        surplus ones are ignored (observed on a NERD server).
        """
        agent = self.agent
        wanted = self.inputs
        if count == wanted and len(data) >= self.request_size:
            if wanted:
                inputs = agent.inputs
                np.maximum(np.frombuffer(data, "<f4", wanted, _STEP_SIZE), agent.low, out=inputs)
                np.minimum(inputs, agent.high, out=inputs)
            return True
        there = max(0, (len(data) - _STEP_SIZE) // 4)
        used = min(max(count, 0), wanted)
        given = np.zeros(used, "<f4")
        read = min(there, used)
        if read:
            given[:read] = np.frombuffer(data, "<f4", read, _STEP_SIZE)
        np.clip(given, agent.low[:used], agent.high[:used], out=agent.inputs[:used])
        return False
