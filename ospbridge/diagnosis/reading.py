"""Probes of overview, info and registrations: D4, D5, D6, D25."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.errors import QueryTimeout
from ospbridge.osp.messages import (
    AgentInfo,
    AgentOverview,
    AgentOverviewAck,
    AgentOverviewNext,
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    GetAgentInfo,
    GetAgentOverview,
)

if TYPE_CHECKING:
    from ospbridge.diagnosis.stage import Stage
    from ospbridge.osp.messages import Message

__all__ = ["foreign_deregister", "list_acks", "own_agent_flag", "unknown_info"]

ROUNDS: Final = 3
"""What rests on a missing answer must be so in each of them: one lost datagram looks the same."""
NO_AGENT: Final = 9_999
"""An id that no agent has."""


def list_acks(stage: Stage) -> Finding:
    """D4: whether a list waits for one acknowledgement, and takes whatever comes for it."""

    def size(head: Message) -> int:
        assert isinstance(head, AgentOverview)
        return head.agents

    line = stage.line
    for _ in range(ROUNDS):
        line.burst(GetAgentOverview(), AgentOverview, AgentOverviewNext, size)
        if not line.eats():
            line.send(AgentOverviewAck())
            return not_seen("an overview that is not acknowledged keeps nobody waiting")
    return seen(
        f"an overview comes in one burst; without its acknowledgement the next datagram is lost ({ROUNDS} times)"
    )


def unknown_info(stage: Stage) -> Finding:
    """D5: the info of an agent that does not exist."""
    stage.agents()
    line = stage.line
    try:
        reply = line.ask(GetAgentInfo(NO_AGENT), AgentInfo).message
    except QueryTimeout:
        return not_seen("GET_AGENT_INFO for an unknown id is not answered")
    assert isinstance(reply, AgentInfo)
    if (reply.agent_id, reply.inputs, reply.outputs, reply.infos, reply.name) != (0, 0, 0, 0, ""):
        return not_seen(f"GET_AGENT_INFO for an unknown id is answered with {reply}")
    if all(_eats_after_unknown_info(stage) for _ in range(ROUNDS)):
        return not_seen("the info of an unknown id is all zero, and waits for an acknowledgement")
    return seen("the info of an unknown id has id 0, no values and no name, and awaits no acknowledgement")


def _eats_after_unknown_info(stage: Stage) -> bool:
    stage.line.ask(GetAgentInfo(NO_AGENT), AgentInfo)
    return stage.line.eats()


def foreign_deregister(stage: Stage) -> Finding:
    """D6: the status of deregistering from an agent that exists and is not ours."""
    agents = stage.agents()
    if not agents:
        return not_tried("the simulator offers no agents")
    reply = stage.line.ask(DeregisterFromAgent(agents[0].id), DeregisterFromAgentAck).message
    assert isinstance(reply, DeregisterFromAgentAck)
    detail = f"DEREGISTER of an agent that is not ours is answered with status {reply.status}"
    return not_seen(detail) if reply.status == 1 else seen(detail)


def own_agent_flag(stage: Stage) -> Finding:
    """D25: the flag of an agent in the overview of the client that controls it."""
    with stage.controlling(1) as (ours,):
        flags = {agent.id: agent.available for agent in stage.agents()}
    if flags.get(ours.id):
        return not_seen("an agent that the asking client controls is flagged as available")
    return seen("an agent that the asking client controls is flagged as taken")
