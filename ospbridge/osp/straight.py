"""The straight way of a step: what comes when nothing happens is known byte for byte, but for the numbers it brings.

An acknowledgement for each vote and then a completion for each, in the order in which the votes were sent: as long as
what arrives is just that, it is recognised by comparing bytes, and no message is made of it. With the first datagram
that is anything else the exchange goes on from where the way stands, message by message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.codes import DATAGRAM_END, Code
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ospbridge.osp.votes import Vote

__all__ = ["MARKED", "StraightWay"]

MARKED: Final = 800
"""So many bytes of a completion are looked at to know it again: less than any server leaves when it cuts."""
_HEAD: Final = struct.Struct("<Biiiii")
_END: Final = bytes((DATAGRAM_END,))


class StraightWay:
    """Of steps with ``votes``, in their order; one object for as long as they stay the same.

    ``outgoing`` gets the datagrams. ``pipelining``: whether a vote may be sent before the last one is acknowledged.
    """

    __slots__ = (
        "_acks",
        "_at",
        "_brought",
        "_count",
        "_heads",
        "_outgoing",
        "_pipelining",
        "_sizes",
        "votes",
    )

    def __init__(self, votes: Sequence[Vote], outgoing: list[bytes | bytearray], *, pipelining: bool) -> None:
        self.votes = votes
        self._outgoing = outgoing
        self._pipelining = pipelining
        self._count = len(votes)
        acks = [NextSimulationStepAck(vote.agent_id).encode() for vote in votes]
        # Some servers mark the end of a datagram.
        self._acks = [(ack, ack + _END) for ack in acks]
        self._heads = [
            _HEAD.pack(
                Code.NEXT_SIMULATION_STEP_COMPLETED,
                vote.agent_id,
                len(vote.agent.outputs),
                len(vote.agent.infos),
                0,
                0,
            )
            for vote in votes
        ]
        self._sizes = [_HEAD.size + 4 * (len(vote.agent.outputs) + len(vote.agent.infos)) for vote in votes]
        self._at = 0
        """How many of the datagrams have come."""
        self._brought: list[bytes] = []

    def begin(self) -> None:
        """Send the first vote, or all of them."""
        self._at = 0
        self._brought = []
        if self._pipelining:
            for vote in self.votes:
                self._outgoing.append(vote.datagram)
        else:
            self._outgoing.append(self.votes[0].datagram)

    def take(self, data: bytes) -> bool:
        """A datagram came. False where it is not the one that comes next; nothing has changed then."""
        at = self._at
        count = self._count
        if at < count:
            if data not in self._acks[at]:
                return False
            at += 1
            if at < count and not self._pipelining:
                self._outgoing.append(self.votes[at].datagram)
            self._at = at
            return True
        which = at - count
        over = len(data) - self._sizes[which]
        if not data.startswith(self._heads[which]) or (over and (over != 1 or data[-1] != DATAGRAM_END)):
            return False
        self._brought.append(data)
        self._outgoing.append(self.votes[which].done)
        self._at = at + 1
        return True

    @property
    def arrived(self) -> bool:
        """All of it has come."""
        return len(self._brought) == self._count

    # --- where it stands -------------------------------------------------------------------------------------------

    @property
    def unsent(self) -> Sequence[Vote]:
        """Votes that were not sent yet."""
        return () if self._pipelining else self.votes[self._at + 1 :]

    @property
    def unacknowledged(self) -> set[int]:
        """Agents whose votes were sent, and not acknowledged."""
        sent = self._count if self._pipelining else self._at + 1
        return {vote.agent_id for vote in self.votes[self._at : sent]}

    @property
    def completions(self) -> dict[int, StepCompleted]:
        """What has come, by agent; writeable arrays that are nobody else's."""
        found = {}
        for vote, data in zip(self.votes, self._brought, strict=False):
            outputs = len(vote.agent.outputs)
            floats = np.frombuffer(bytearray(data), "<f4", outputs + len(vote.agent.infos), _HEAD.size)
            found[vote.agent_id] = StepCompleted(vote.agent_id, floats[:outputs], floats[outputs:])
        return found

    @property
    def bodies(self) -> Iterator[tuple[int, bytes]]:
        """Outputs and infos that have come, by agent, as far as completions are known again by them."""
        for vote, data, size in zip(self.votes, self._brought, self._sizes, strict=False):
            yield vote.agent_id, data[_HEAD.size : min(size, _HEAD.size + MARKED)]
