"""A server of nothing but lists, which may read the document in its own way."""

from __future__ import annotations

from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    GetAgentInfo,
    GetAgentOverview,
    GetValue,
    GetValueIds,
    Message,
    ValueContent,
    ValueIds,
    ValueInfo,
    decode_request,
)


class Lister:
    """Answers questions for lists. ``one_by_one``: it sends each piece when anything has come behind the one before."""

    def __init__(
        self,
        agents: int,
        *,
        first: int = 0,
        one_by_one: bool = False,
        by_kind: bool = False,
        strict: Code | None = None,
    ) -> None:
        self.agents = agents
        self.first = first
        self.by_kind = by_kind
        """Inputs, outputs and infos have an index each."""
        self.strict = strict
        """Behind a list of values this is awaited, and all else ignored; with ``one_by_one`` behind each of them."""
        self.one_by_one = one_by_one
        self.asked = 0
        self._left: list[Message] = []
        self.awaits = False
        """A piece was sent, and is to be acknowledged."""

    def answers(self, data: bytes) -> list[Message]:
        if self.awaits:
            if self.strict is not None and data[0] != self.strict:
                return []
            # Else whatever comes.
            self.awaits = False
            return self._next()
        request = decode_request(data)
        if self.strict is not None and isinstance(request, GetValueIds):
            self.asked += 1
            found: list[Message] = [ValueInfo(i, i + 1, "Double", f"/value{i}") for i in range(self.agents)]
            self.awaits = True
            self._left = found[1:] if self.one_by_one else []
            return [ValueIds(self.agents), *(found[:1] if self.one_by_one else found)]
        if isinstance(request, GetValue):
            return [ValueContent(request.value_id, "0.5")]
        if isinstance(request, GetAgentOverview):
            pieces: list[Message] = [
                AgentOverviewNext(self.first + i, i + 1, "Agent", 1, f"agent{i}") for i in range(self.agents)
            ]
            head: Message = AgentOverview(self.agents)
        elif isinstance(request, GetAgentInfo):
            order = [0, 1, 2, 3, 0, 1, 2, 0, 1] if self.by_kind else range(9)
            pieces = [AgentInfoNext(self.first + i, -1.0, 1.0, f"/value{at}") for at, i in enumerate(order)]
            head = AgentInfo(request.agent_id, 4, 3, 2, "agent0")
        else:
            return []
        self.asked += 1
        if not self.one_by_one:
            return [head, *pieces]
        self._left = pieces
        return [head, *self._next()]

    def _next(self) -> list[Message]:
        if not self._left:
            return []
        self.awaits = True
        return [self._left.pop(0)]
