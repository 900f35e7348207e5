"""Leaving a server so that no agent stays taken (OSP 1.1, sections 2 and 4.3).

The document lets END terminate a connection and does not say that this frees its agents. Where that is not known they
are given back before, all at once: however many they are, it takes one round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import QueryTimeout
from ospbridge.osp.client import asking, roster
from ospbridge.osp.messages import (
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    StepCompletedAck,
    Truncated,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.osp.client.machine import ClientMachine, Exchange

__all__ = ["leave"]


def leave(m: ClientMachine, agents: Iterable[int]) -> Exchange[bool]:
    """Give ``agents`` back and say goodbye, as the profile allows; True where that was confirmed.

    Takes ``limits.close`` at most.
    """
    m.leaving = True
    give_up = m.now + m.limits.close
    if m.may_say_goodbye:
        if not m.profile.end_frees_agents:
            # Half the time is left for END, which many a server frees agents by.
            yield from _give_back(m, agents, m.now + m.limits.close / 2)
        return (yield from asking.end(m, limit=give_up - m.now))
    try:
        for agent_id in dict.fromkeys(agents):
            yield from roster.deregister(m, agent_id, limit=max(give_up - m.now, 0.01))
    except QueryTimeout:
        return False
    return True


def _give_back(m: ClientMachine, agents: Iterable[int], give_up: float) -> Exchange[None]:
    """Deregister from all of them side by side. Silence is no error."""
    missing = dict.fromkeys(agents)
    waits = m.waits()
    while missing:
        for agent_id in missing:
            m.send(DeregisterFromAgent(agent_id))
        again_at = min(m.now + waits.next(), give_up)
        while missing:
            reply = yield again_at
            if reply is None:
                break
            message = reply.message if isinstance(reply, Truncated) else reply
            if isinstance(message, DeregisterFromAgentAck) and message.agent_id in missing:
                del missing[message.agent_id]
                m.controlled.pop(message.agent_id, None)
            else:
                # Of others, for whom the barrier may open now, and answers to what was asked again.
                m.unexpected(reply)
        if missing:
            m.anomaly(f"{DeregisterFromAgent.CODE.name} met silence")
            if m.now >= give_up:
                return
            m.retries += 1
            m.send(StepCompletedAck(0))
