"""Interface values whose index begins anew with inputs, outputs and infos (OSP 1.1, section 4.3).

The document's layout can be read so; servers that can still be run have one index for all of them. Pieces that come in
exactly that order, all of them in one burst, are what they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.osp.messages import AgentInfo, AgentInfoNext

if TYPE_CHECKING:
    from ospbridge.osp.messages import Message

__all__ = ["IndexedByKind", "InfoPieces"]


class IndexedByKind(Exception):  # no error: the list is complete
    """All pieces came, each kind with an index of its own."""

    def __init__(self, head: AgentInfo, pieces: list[Message]) -> None:
        super().__init__()
        self.head = head
        self.pieces = dict(enumerate(pieces))


class InfoPieces:
    """What ``collect`` asks of each reply, about the info of one agent."""

    def __init__(self, agent_id: int) -> None:
        self._agent_id = agent_id
        self._head: AgentInfo | None = None
        self._came: list[Message] = []
        """As long as it may be so, in order."""
        self._burst: list[int] = []
        """Hashes of all pieces of this try, whatever they may be; of more than were announced one."""
        self._last_burst: list[int] = []
        """And of the try before."""
        self._seen: set[int] = set()
        self._as_before = False
        """The try before had just as many pieces as were announced, and those until now are the same.

        What comes twice was sent twice then, as where two kinds have the very same value, and not doubled on its way.
        """
        self._starts = (0, 0, 0)
        self._first = 0
        """What the first index of each kind is: 0, or 1 on servers that count so."""
        self._total = 0
        self._may_be_so = False

    def count(self, message: Message) -> int | None:
        """How many pieces a head announces; None for what is none."""
        if not isinstance(message, AgentInfo) or message.agent_id not in (self._agent_id, 0):
            return None
        inputs, outputs, infos = counts = (message.inputs, message.outputs, message.infos)
        if min(counts) < 0:
            return -1
        self._head = message
        self._came = []
        self._last_burst, self._burst = self._burst, []
        self._starts = (0, inputs, inputs + outputs)
        self._total = inputs + outputs + infos
        self._seen = set()
        self._as_before = len(self._last_burst) == self._total
        self._may_be_so = max(counts) < self._total
        return self._total

    def index(self, message: Message) -> int | None:
        """Which piece a reply is: -1 for one that is kept back, None for no piece. Raises IndexedByKind."""
        if not isinstance(message, AgentInfoNext):
            return None
        piece = hash(message)
        at = len(self._burst)
        self._as_before = self._as_before and at < self._total and self._last_burst[at] == piece
        if at <= self._total:
            self._burst.append(piece)
        if not self._may_be_so:
            return message.index
        repeated = piece in self._seen
        self._seen.add(piece)
        if repeated and not self._as_before:
            return message.index
        at = len(self._came)
        if at == 0:
            self._first = 1 if message.index == 1 else 0
        within_kind = message.index - self._first
        if at >= self._total or within_kind != self._within_kind(at):
            self._may_be_so = False
            return message.index
        self._came.append(message)
        if len(self._came) == self._total and self._head is not None:
            raise IndexedByKind(self._head, self._came)
        return message.index if within_kind == at else -1

    def _within_kind(self, at: int) -> int:
        return at - max(start for start in self._starts if start <= at)
