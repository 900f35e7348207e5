"""A server of nothing but lists, which may read the document in its own way."""

from __future__ import annotations

from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    GetAgentInfo,
    GetAgentOverview,
    Message,
    decode_request,
)


class Lister:
    """Answers questions for lists. ``one_by_one``: it sends each piece when anything has come behind the one before."""

    def __init__(self, agents: int, *, first: int = 0, one_by_one: bool = False) -> None:
        self.agents = agents
        self.first = first
        self.one_by_one = one_by_one
        self.asked = 0
        self._left: list[Message] = []
        self._awaits = False

    def answers(self, data: bytes) -> list[Message]:
        if self._awaits:
            # Whatever comes.
            self._awaits = False
            return self._next()
        request = decode_request(data)
        if isinstance(request, GetAgentOverview):
            pieces: list[Message] = [
                AgentOverviewNext(self.first + i, i + 1, "Agent", 1, f"agent{i}") for i in range(self.agents)
            ]
            head: Message = AgentOverview(self.agents)
        elif isinstance(request, GetAgentInfo):
            pieces = [AgentInfoNext(self.first + i, -1.0, 1.0, f"/value{i}") for i in range(9)]
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
        self._awaits = True
        return [self._left.pop(0)]
