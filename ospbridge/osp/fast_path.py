"""The fast path of a step: what comes when nothing goes wrong is known byte for byte, but for the numbers it brings.

A request for each agent, an acknowledgement for each, and then a completion for each, in the order of the requests: as
long as what arrives is just that, a driver recognizes it by comparing bytes (``first``, ``expected``, ``came``), with
nothing between it and the socket, and no message is made of it. With the first datagram that is anything else the
exchange of the step goes on from there, message by message (``step``). OSP 1.1, section 4.7.
"""

from __future__ import annotations

import sys
from math import isfinite
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.finite import all_finite
from ospbridge.interface import StepOutcome
from ospbridge.osp.messages import NextSimulationStep, NextSimulationStepAck, StepCompleted, StepCompletedAck
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from ospbridge.interface import AgentInterface
    from ospbridge.osp.profile import Profile

__all__ = ["REQUESTS_AT_ONCE", "Expected", "FastPath", "StepRequest"]

REQUESTS_AT_ONCE: Final = 128
"""Requests that may wait to be acknowledged: a server's receive buffer of the usual size holds under 300 datagrams."""
FEW: Final = 64
"""Inputs that are checked where they stand in the datagram, as plain numbers."""
ALL: Final = slice(None)
_HEAD: Final = NextSimulationStep.HEAD.size
_BODY: Final = StepCompleted.HEAD.size
_FLOAT: Final = np.dtype("<f4")
_NOTHING: Final[NDArray[np.float32]] = np.zeros(0, np.float32)


class StepRequest:
    """NEXT_SIMULATION_STEP of one agent, prepared once and filled in place for each step.

    ``inputs``: float32[n_inputs], in the simulator's announced ranges; a view into ``datagram``.
    """

    __slots__ = (
        "_few",
        "_place",
        "_size",
        "agent",
        "agent_id",
        "completed_ack",
        "datagram",
        "inputs",
        "name",
    )

    def __init__(self, agent: AgentInterface, profile: Profile) -> None:
        count = len(agent.inputs)
        self.agent = agent
        self.agent_id = agent.id
        self.name = agent.name
        self.datagram = bytearray(NextSimulationStep.pack(agent.id, count) + bytes(4 * count) + profile.end)
        self._size = 4 * count
        self._place = slice(_HEAD, _HEAD + self._size)
        """Where the inputs stand in the datagram."""
        self._few: memoryview[float] | None = None
        if 0 < count <= FEW and sys.byteorder == "little":
            self._few = memoryview(self.datagram)[self._place].cast("f")
        self.inputs: NDArray[np.float32] = np.frombuffer(self.datagram, _FLOAT, count, _HEAD)
        self.completed_ack = StepCompletedAck(agent.id).encode(end=profile.end_marker)
        """What acknowledges this agent's completion."""

    def _unfit(self, inputs: ArrayLike, why: str = "") -> LocalProtocolError:
        return LocalProtocolError(
            f"agent {self.agent.name!r} has {pluralize(len(self.inputs), 'input')}, got {np.shape(inputs)}{why}",
            hint="`ospbridge describe AGENT` lists them in order",
        )

    def fill(self, inputs: ArrayLike) -> None:
        """Take over the inputs of the next step. Raises LocalProtocolError for a wrong number, NaN or infinity.

        ``bytes`` are float32 as they are sent, and are not checked: whoever has them so has done that.
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

    def rest(self) -> None:
        """Fill in neutral inputs: 0, or what of the announced range is nearest to it."""
        values = self.agent.inputs
        low, high = [value.min for value in values], [value.max for value in values]
        # A bound that is no number bounds nothing.
        self.inputs[:] = np.fmin(np.fmax(0.0, low), high)


class Expected(NamedTuple):
    """A datagram of the fast path."""

    head: bytes
    """How it begins."""
    size: int
    """Its length in bytes; a server may add the end byte."""
    answer: bytes | bytearray | None
    """What is sent when it has come."""
    completes: bool


class FastPath:
    """Of steps with ``requests``, in their order; one object for as long as they stay the same.

    ``pipelining``: whether a request may be sent before the one before it is acknowledged, at most
    ``REQUESTS_AT_ONCE``.
    """

    __slots__ = (
        "_prepared",
        "_sizes",
        "began",
        "came",
        "count",
        "expected",
        "first",
        "requests",
    )

    def __init__(self, requests: Sequence[StepRequest], *, pipelining: bool) -> None:
        self.requests = requests
        self.count = count = len(requests)
        at_once = REQUESTS_AT_ONCE if pipelining else 1
        self.first = [request.datagram for request in requests[:at_once]]
        """What is sent before anything comes."""
        following = [*(request.datagram for request in requests[at_once:]), *[None] * min(at_once, count)]
        acks = [NextSimulationStepAck(request.agent_id).encode() for request in requests]
        self.expected = [
            *(Expected(ack, len(ack), answer, False) for ack, answer in zip(acks, following, strict=True)),
            *(_completion(request) for request in requests),
        ]
        """What comes, in order."""
        self._sizes = [
            (size + 1, len(request.agent.outputs), len(request.agent.infos))
            for request, (_, size, _, _) in zip(requests, self.expected[count:], strict=True)
        ]
        """Of each completion: bytes, an end byte included, outputs and infos."""
        self._prepared: list[tuple[bytearray, StepOutcome]] = []
        self.began = 0.0
        """When the first request was sent."""
        self.came: list[bytes] = []
        """What has come of it; another list in each step."""

    @property
    def completing(self) -> bool:
        """All requests are acknowledged: what comes next takes as long as the simulator needs for the step."""
        return len(self.came) >= self.count

    def prepare(self) -> None:
        """Make the arrays that ``outcomes`` will fill: there is time for it while the simulator works."""
        self._prepared = [
            (mine := bytearray(size), _outcome(mine, outputs, infos)) for size, outputs, infos in self._sizes
        ]

    def outcomes(self) -> dict[str, StepOutcome]:
        """What the step brought, by the agent's name; writeable arrays that are nobody else's."""
        if self.count == 1:
            return {self.requests[0].name: self.outcome()}
        if not self._prepared:
            self.prepare()
        found = {}
        for request, (mine, outcome), data in zip(
            self.requests, self._prepared, self.came[self.count :], strict=True
        ):
            mine[: len(data)] = data
            found[request.name] = outcome
        self._prepared = []
        return found

    def outcome(self) -> StepOutcome:
        """The same of the only agent there is."""
        data = self.came[1]
        if not self._prepared:
            return _outcome(bytearray(data), *self._sizes[0][1:])
        ((mine, outcome),) = self._prepared
        self._prepared = []
        mine[: len(data)] = data
        return outcome

    def completions(self, came: Sequence[bytes]) -> dict[int, StepCompleted]:
        """The completions among what came, by agent; arrays are views of datagrams."""
        return {
            request.agent_id: StepCompleted.decode(data)
            for request, data in zip(self.requests, came[self.count :], strict=False)
        }


def _completion(request: StepRequest) -> Expected:
    outputs, infos = len(request.agent.outputs), len(request.agent.infos)
    head = StepCompleted.pack(request.agent_id, outputs, infos, 0, 0)
    return Expected(head, StepCompleted.length(outputs + infos), request.completed_ack, True)


def _outcome(data: bytearray, outputs: int, infos: int) -> StepOutcome:
    """Of a completion with so many numbers, or of what will be one."""
    return StepOutcome(
        np.frombuffer(data, _FLOAT, outputs, _BODY),
        np.frombuffer(data, _FLOAT, infos, _BODY + 4 * outputs) if infos else _NOTHING,
    )
