"""Leaving a server so that no agent stays taken (OSP 1.1, sections 2, 4.2 and 4.3).

The document lets END terminate a connection and does not say that this frees its agents. Where that is not known they
are given back before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import QueryTimeout
from ospbridge.osp.agents import deregister
from ospbridge.osp.messages import End, EndAck, ResetCommunication, ResetCommunicationAck, StepCompleted
from ospbridge.osp.queries import ask
from ospbridge.osp.step import STALL_PASSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["leave", "reset_communication"]

RESET_COMMUNICATION_LIMIT: Final = 0.3
"""Seconds to wait for RESET_COMMUNICATION_ACK: the requester misses it in 5 to 25 % of the tries."""


def leave(m: ClientMachine, agents: Iterable[int]) -> Exchange[bool]:
    """Give ``agents`` back and say goodbye, as the profile allows; True where that was confirmed.

    Takes ``limits.close`` at most. Silence is no error.
    """
    with m.limited(m.limits.close) as give_up:
        if m.episode.request_outstanding and m.profile.requests_outlive_sessions:
            yield from _pending_step(m)
        try:
            if not (m.may_say_goodbye and m.profile.end_frees_agents):
                # Half the time is left for END, which many a server frees agents by.
                with m.limited(m.limits.close / 2 if m.may_say_goodbye else m.limits.close):
                    for agent_id in dict.fromkeys(agents):
                        yield from deregister(m, agent_id)
        except QueryTimeout:
            if not m.may_say_goodbye:
                return False
        if not m.may_say_goodbye:
            return True
        m.ended = True
        try:
            yield from ask(m, End(), EndAck, what="goodbye", limit=give_up - m.now)
        except QueryTimeout:
            return False
    m.controlled.clear()
    return True


def _pending_step(m: ClientMachine) -> Exchange[None]:
    """Let a step run that was given up: requests that are still counted then step the world of the next session."""
    missing = set(m.controlled)
    while missing and m.now < m.limit and (reply := (yield min(m.now + STALL_PASSES, m.limit))) is not None:
        if isinstance(reply, StepCompleted):
            missing.discard(reply.agent_id)
        m.unexpected(reply)


def reset_communication(m: ClientMachine) -> Exchange[bool]:
    """Disconnect every client of the simulator, this one too; True where it was confirmed to us."""
    # From here on a handler that is gone is what was asked for.
    m.ended = True
    request, what = ResetCommunication(), "restart of the communication"
    try:
        yield from ask(m, request, ResetCommunicationAck, what=what, limit=RESET_COMMUNICATION_LIMIT)
    except QueryTimeout:
        return False
    finally:
        m.controlled.clear()
    return True
