"""The straight way of a step: what comes when nothing happens is known byte for byte, but for the numbers it brings.

An acknowledgement for each vote and then a completion for each, in the order in which the votes were sent: as long as
what arrives is just that, it is recognised by comparing bytes, and no message is made of it. With the first datagram
that is anything else the exchange goes on from where the way stands, message by message.

Links walk it by themselves (``first``, ``expected``, ``came``), with nothing between them and the socket; an exchange
that is driven datagram by datagram calls ``begin`` and ``take``.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.interface import StepOutcome
from ospbridge.osp.codes import DATAGRAM_END, Code
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from ospbridge.osp.step.votes import Vote

__all__ = ["MARKED", "VOTES_AT_ONCE", "StraightWay"]

MARKED: Final = 800
"""So many bytes of a completion are looked at to know it again: less than any server leaves when it cuts."""
VOTES_AT_ONCE: Final = 128
"""So many votes may wait to be acknowledged: a server's receive buffer of the usual size holds under 300 datagrams."""
STEPS_KEPT: Final = 256
BYTES_KEPT: Final = 1024 * 1024
"""Of so many steps and bytes at most what came is kept as it came, before somebody must know it again."""
_HEAD: Final = struct.Struct("<Biiiii")
_BODY: Final = _HEAD.size
_FLOAT: Final = np.dtype("<f4")
_NOTHING: Final[NDArray[np.float32]] = np.zeros(0, np.float32)


class StraightWay:
    """Of steps with ``votes``, in their order; one object for as long as they stay the same.

    ``outgoing`` gets the datagrams of an exchange. ``pipelining``: whether a vote may be sent before the last one is
    acknowledged, at most ``VOTES_AT_ONCE``.
    """

    __slots__ = (
        "_at_once",
        "_names",
        "_outgoing",
        "_prepared",
        "began",
        "came",
        "count",
        "expected",
        "first",
        "left",
        "pipelined",
        "sizes",
        "votes",
        "walked",
    )

    def __init__(self, votes: Sequence[Vote], outgoing: list[bytes | bytearray], *, pipelining: bool) -> None:
        self.votes = votes
        self.count = count = len(votes)
        self._outgoing = outgoing
        self._at_once = at_once = VOTES_AT_ONCE if pipelining else 1
        self.pipelined = pipelining and count > 1
        """Many votes are under way before anything comes, and all completions likewise."""
        self.first = [vote.datagram for vote in votes[:at_once]]
        """What is sent before anything comes."""
        self.sizes = [
            (
                _BODY + 4 * (len(vote.agent.outputs) + len(vote.agent.infos)),
                len(vote.agent.outputs),
                len(vote.agent.infos),
            )
            for vote in votes
        ]
        """Of each completion: bytes, outputs, infos."""
        self._names = [vote.agent.name for vote in votes]
        self._prepared: list[tuple[bytearray, StepOutcome]] = []
        following = [*(vote.datagram for vote in votes[at_once:]), *[None] * min(at_once, count)]
        self.expected: list[tuple[bytes, int, bytes | bytearray | None, bool]] = [
            (ack, len(ack), answer, False)
            for ack, answer in zip(
                [NextSimulationStepAck(vote.agent_id).encode() for vote in votes], following, strict=True
            )
        ] + [
            (_head(vote), size, vote.done, True) for vote, (size, _, _) in zip(votes, self.sizes, strict=True)
        ]
        """What comes, in order: how it begins, how long it is (servers may add the end byte), what is answered, and
        whether it is a completion."""
        self.began = 0.0
        """When the first vote was sent."""
        self.came: list[bytes] = []
        """What has come of it."""
        self.left = False
        """A link has left it already, and does not walk it again in the same step."""
        whole = sum(size for size, _, _ in self.sizes)
        self.walked: deque[list[bytes]] = deque(maxlen=max(min(STEPS_KEPT, BYTES_KEPT // whole), 1))
        """All that came in the latest steps that were walked to their end; whoever remembers it empties this."""

    def begin(self, now: float) -> None:
        """Send the first vote, or as many as may be under way."""
        self.began = now
        self.left = False
        self.came = []
        self.prepare()
        self._outgoing += self.first

    def take(self, data: bytes) -> bool:
        """A datagram came, whose answer is to be sent. False where it is not the next one; nothing has changed then."""
        answer = self.expected[len(self.came)][2]
        if not self.comes(data):
            return False
        if answer is not None:
            self._outgoing.append(answer)
        return True

    def comes(self, data: bytes) -> bool:
        """``take`` for a link that answers by itself."""
        came = self.came
        head, size, _, _ = self.expected[len(came)]
        over = len(data) - size
        if not data.startswith(head) or (over and (over != 1 or data[-1] != DATAGRAM_END)):
            return False
        came.append(data)
        return True

    @property
    def arrived(self) -> bool:
        """All of it has come."""
        return len(self.came) == len(self.expected)

    @property
    def completing(self) -> bool:
        """All votes are acknowledged: what comes next takes as long as the simulator thinks."""
        return len(self.came) >= self.count

    def prepare(self) -> None:
        """Make the arrays that ``outcomes`` will fill: there is time for it while the simulator works."""
        self._prepared = [
            (mine := bytearray(size + 1), _outcome(mine, outputs, infos))
            for size, outputs, infos in self.sizes
        ]

    def outcomes(self) -> dict[str, StepOutcome]:
        """What the step brought, by the agent's name; writeable arrays that are nobody else's."""
        at = self.count
        if at == 1:
            if not self._prepared:
                return {self._names[0]: self.outcome()}
            # ``outcome`` once more: a call is a hundredth of such a step.
            data = self.came[1]
            ((mine, outcome),) = self._prepared
            self._prepared = []
            mine[: len(data)] = data
            return {self._names[0]: outcome}
        found = {}
        came = self.came
        for (mine, outcome), name in zip(self._prepared, self._names, strict=True):
            data = came[at]
            mine[: len(data)] = data
            found[name] = outcome
            at += 1
        self._prepared = []
        return found

    def outcome(self) -> StepOutcome:
        """The same of the only agent there is."""
        data = self.came[1]
        if not self._prepared:
            _, outputs, infos = self.sizes[0]
            return _outcome(bytearray(data), outputs, infos)
        ((mine, outcome),) = self._prepared
        self._prepared = []
        mine[: len(data)] = data
        return outcome

    # --- where it stands -------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> Sequence[Vote]:
        """Votes that were not sent yet."""
        return self.votes[len(self.came) + self._at_once :]

    @property
    def unacknowledged(self) -> set[int]:
        """Agents whose votes were sent, and not acknowledged."""
        at = len(self.came)
        sent = at + self._at_once
        return {vote.agent_id for vote in self.votes[at:sent]}

    @property
    def completions(self) -> dict[int, StepCompleted]:
        """What has come, by agent; writeable arrays that are nobody else's."""
        found = {}
        for vote, data, (_, outputs, infos) in zip(
            self.votes, self.came[self.count :], self.sizes, strict=False
        ):
            floats = np.frombuffer(bytearray(data), _FLOAT, outputs + infos, _BODY)
            found[vote.agent_id] = StepCompleted(vote.agent_id, floats[:outputs], floats[outputs:])
        return found

    def bodies(self) -> Iterator[tuple[int, bytes]]:
        """Outputs and infos of the steps walked, by agent, as far as completions are known again by them; once."""
        while self.walked:
            came = self.walked.popleft()
            for vote, data, (size, _, _) in zip(self.votes, came[self.count :], self.sizes, strict=False):
                yield vote.agent_id, data[_BODY : min(size, _BODY + MARKED)]


def _outcome(data: bytearray, outputs: int, infos: int) -> StepOutcome:
    """Of a completion, or of what will be one."""
    return StepOutcome(
        np.frombuffer(data, _FLOAT, outputs, _BODY),
        np.frombuffer(data, _FLOAT, infos, _BODY + 4 * outputs) if infos else _NOTHING,
    )


def _head(vote: Vote) -> bytes:
    agent = vote.agent
    return _HEAD.pack(
        Code.NEXT_SIMULATION_STEP_COMPLETED, vote.agent_id, len(agent.outputs), len(agent.infos), 0, 0
    )
