"""Probes of overview, info and registrations: D4, D5, D6, D25."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.diagnosis.findings import Finding, not_seen, not_tried, seen
from ospbridge.errors import QueryTimeout
from ospbridge.osp.lists import Listed, collect
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
    from collections.abc import Callable

    from ospbridge.diagnosis.stage import Stage
    from ospbridge.osp.client import Exchange

__all__ = [
    "AGAINST",
    "MANY",
    "ROUNDS",
    "foreign_deregister",
    "list_acks",
    "mostly",
    "own_agent_flag",
    "unknown_info",
]

ROUNDS: Final = 3
"""How often an answer has to be missing: one lost datagram looks the same."""
MANY: Final = 1_000
"""Tries for a list: until its time is up."""
AGAINST: Final = 2
"""How often it has to come in spite of all: one doubled datagram looks the same."""
NO_AGENT: Final = 9_999
"""An id that no agent has."""


def list_acks(stage: Stage) -> Finding:
    """D4: whether a list waits for one acknowledgement, and takes whatever comes for it."""
    line = stage.line

    def listing(tries: int) -> Exchange[Listed[AgentOverviewNext]]:
        return collect(
            line.lists,
            GetAgentOverview(),
            AgentOverviewNext,
            count=lambda x: x.agents if isinstance(x, AgentOverview) else None,
            ack=None,
            what="agent overview",
            tries=tries,
        )

    def stops() -> bool:
        found = line.listed(listing(1))
        if found.complete:
            line.send(AgentOverviewAck())
            return False
        stage.agents()
        return len(found.pieces) == 1

    def unacknowledged() -> bool:
        line.listed(listing(MANY))
        return line.eats()

    if mostly(stops):
        return not_seen("each datagram of an overview waits for an acknowledgement of its own")
    if mostly(unacknowledged):
        return seen(
            f"an overview comes in one burst; without its acknowledgement the next datagram is lost ({ROUNDS} times)"
        )
    line.send(AgentOverviewAck())
    return not_seen("an overview that is not acknowledged keeps nobody waiting")


def mostly(eaten: Callable[[], bool]) -> bool:
    """Whether a datagram is eaten, tried until that is more than a lost datagram, or a doubled one."""
    for_it = against = 0
    while for_it < ROUNDS and against < AGAINST:
        if eaten():
            for_it += 1
        else:
            against += 1
    return for_it == ROUNDS


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

    def unacknowledged() -> bool:
        line.ask(GetAgentInfo(NO_AGENT), AgentInfo)
        return line.eats()

    if mostly(unacknowledged):
        return not_seen("the info of an unknown id is all zero, and waits for an acknowledgement")
    return seen("the info of an unknown id has id 0, no values and no name, and awaits no acknowledgement")


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
