"""A step request, prepared once per agent and filled in place for each step.

This is the sending half of the step path: no dataclass, no new bytes, one copy of the inputs into the datagram.
OSP 1.1, section 4.7.
"""

from __future__ import annotations

import struct
import sys
from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.counts import numbered
from ospbridge.errors import LocalProtocolError
from ospbridge.finite import all_finite
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import StepCompletedAck

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from ospbridge.interface import AgentInterface
    from ospbridge.osp.profile import Profile

__all__ = ["Vote"]

ALL: Final = slice(None)
FEW: Final = 64
"""Inputs that are looked at where they stand in the datagram."""
_HEAD: Final = struct.Struct("<Bii")


class Vote:
    """NEXT_SIMULATION_STEP of one agent. ``inputs`` is float32[n_inputs], a view into ``datagram``."""

    __slots__ = ("_few", "_place", "_size", "agent", "agent_id", "datagram", "done", "inputs", "name")

    def __init__(self, agent: AgentInterface, profile: Profile) -> None:
        count = len(agent.inputs)
        self.agent = agent
        self.agent_id = agent.id
        self.name = agent.name
        self.datagram = bytearray(
            _HEAD.pack(Code.NEXT_SIMULATION_STEP, agent.id, count) + bytes(4 * count) + profile.end
        )
        self._size = 4 * count
        self._place = slice(_HEAD.size, _HEAD.size + self._size)
        """Where the inputs stand in the datagram."""
        self._few: memoryview[float] | None = None
        """The inputs once more, as plain numbers, where they are few."""
        if 0 < count <= FEW and sys.byteorder == "little":
            self._few = memoryview(self.datagram)[_HEAD.size : _HEAD.size + 4 * count].cast("f")
        self.inputs: NDArray[np.float32] = np.frombuffer(self.datagram, "<f4", count, _HEAD.size)
        self.done = StepCompletedAck(agent.id).encode(end=profile.end_marker)
        """The acknowledgement of this agent's completion."""

    def _unfit(self, inputs: ArrayLike, why: str = "") -> LocalProtocolError:
        return LocalProtocolError(
            f"agent {self.agent.name!r} has {numbered(len(self.inputs), 'input')}, got {np.shape(inputs)}{why}",
            hint="`ospbridge describe AGENT` lists them in order",
        )

    def fill(self, inputs: ArrayLike) -> None:
        """Take over the inputs of the next step. Raises LocalProtocolError for a wrong number, NaN or infinity.

        ``bytes`` are float32 as they are sent, and no NaN or infinity is looked for: whoever has them so has done that.
        """
        if type(inputs) is bytes and len(inputs) == self._size:
            self.datagram[self._place] = inputs
            return
        few = self._few
        if few is not None:
            try:
                # What is float32[n_inputs] already is taken as it stands, in half the time.
                few[ALL] = inputs  # type: ignore[assignment]  # what has no such buffer is read below
            except Exception:  # noqa: BLE001, S110  # each kind of array says so in its own way
                pass
            else:
                # A sum of float32 in doubles is finite exactly when every one is.
                if isfinite(sum(few)):
                    return
        mine = self.inputs
        try:
            # What is one number only would be written to all.
            fits = len(inputs) == len(mine)  # type: ignore[arg-type]  # what has no length is told
            if fits:
                mine[:] = inputs
        except (ValueError, TypeError) as error:
            raise self._unfit(inputs, f": {error}") from None
        if not fits:
            raise self._unfit(inputs)
        if not all_finite(mine):
            at = int(np.flatnonzero(~np.isfinite(mine))[0])
            raise LocalProtocolError(
                f"input {at} ({self.agent.inputs[at].name}) of agent {self.agent.name!r} is {mine[at]}; "
                "a simulator keeps NaN until its next reset",
                hint="check what the policy returned",
            )
