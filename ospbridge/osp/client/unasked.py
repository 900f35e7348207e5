"""Replies that nobody awaits: what they say about the world, the network, and what may be believed from now on.

Other clients' resets are acknowledged, late and doubled datagrams are told apart from answers, an eviction ends the
session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import SessionEvicted, SessionLost
from ospbridge.osp.client.clock import Moved
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfoAck,
    AgentOverviewAck,
    EndAck,
    Message,
    NextSimulationStepAck,
    ResetCommunicationAck,
    ResetSimulationAck,
    StepCompleted,
    StepCompletedAck,
    Truncated,
    ValueContent,
    ValueInfoAck,
)
from ospbridge.osp.step.overcounting import can_hold_back, counted_twice, holds_back

if TYPE_CHECKING:
    from ospbridge.osp.client.machine import ClientMachine, Reply

__all__ = ["LISTED", "RESET_COMPLETED", "denies_reset", "reset_by_others", "unasked"]

RESET_COMPLETED: Final = {
    Code.RESET_SIMULATION_COMPLETED: Code.RESET_SIMULATION_COMPLETED_ACK,
    Code.RESET_SIMULATION_COMPLETED_ACK: Code.RESET_SIMULATION_COMPLETED,
}
"""What servers tell a completed reset with, and the answer to each: document and practice have them swapped."""
LISTED: Final = frozenset(
    {
        Code.AGENT_OVERVIEW,
        Code.AGENT_OVERVIEW_NEXT,
        Code.AGENT_INFO,
        Code.AGENT_INFO_NEXT,
        Code.VALUE_IDS,
        Code.VALUE_INFO,
    }
)
"""What lists are made of."""
_PIECES: Final[dict[int, type[Message]]] = {
    Code.AGENT_OVERVIEW_NEXT: AgentOverviewAck,
    Code.AGENT_INFO_NEXT: AgentInfoAck,
    Code.VALUE_INFO: ValueInfoAck,
}
"""What acknowledges a piece of each."""


def unasked(m: ClientMachine, reply: Reply) -> None:
    """A reply that nobody awaits. Raises SessionLost where it says that the session is over."""
    message = reply.message if isinstance(reply, Truncated) else reply
    if message.CODE in RESET_COMPLETED:
        # Each handler waits for this acknowledgement and eats the next datagram in its place.
        m.acknowledge_reset(message.CODE)
        m.lateness.reset_completed_behind(m.now)
        if m.resets_outstanding >= len(m.controlled) > 0 and not m.foreign:
            # Whoever asked for it did not wait; should it be a copy of an earlier one, it is yet to come (``owed``).
            m.left_reset_done = True
            return
        if m.resets_owed:
            # Of our own votes; the step that is to begin the episode runs behind it.
            m.resets_owed -= 1
            m.reset_within = m.vote_outstanding
            return
        if m.clock.tells_resets and not m.foreign:
            m.reset_told = True
        else:
            reset_by_others(m)
    elif isinstance(message, StepCompleted):
        m.send(StepCompletedAck(message.agent_id))
        m.lateness.came_behind(message.agent_id, m.now)
        if m.recalls(message):
            m.anomaly(f"completion of agent {message.agent_id} came late or twice", astray=True)
        else:
            m.suspect = (
                f"a completion of agent {message.agent_id} came that belongs to no step of this session"
            )
            m.anomaly(m.suspect, astray=True)
    elif isinstance(message, NextSimulationStepAck) and message.agent_id in m.controlled:
        _surplus_acknowledgement(m, message.agent_id)
    elif isinstance(message, ResetCommunicationAck):
        raise SessionEvicted(
            f"the communication of {m.peer} was restarted by a client: all sessions and registrations are gone"
        )
    elif isinstance(message, EndAck):
        if not m.ended:
            raise SessionLost(f"{m.peer} ended this session")
    elif isinstance(message, ResetSimulationAck):
        # Also sent behind RESET_COMMUNICATION_ACK by real servers.
        m.anomaly("an acknowledgement of a reset came unasked")
        if m.controlled and not m.clock.count:
            # Our vote may have come twice: then there is another reset, before the step that is to begin the episode.
            m.resets_owed += 1
    else:
        # The rest of a list that was asked for again and became complete meanwhile says nothing about lateness.
        m.punctual = m.punctual and message.CODE in LISTED and m.retries > 0
        m.anomaly(f"{Code(message.CODE).name} came late or twice")
        acknowledgement = _PIECES.get(message.CODE)
        if acknowledgement is not None and _lets_on(m):
            # Of a question that was asked again, and kept until the first was answered: it waits to be let on.
            m.send(acknowledgement())
        if isinstance(message, ValueContent):
            # What was taken for thrown away was answered all the same.
            m.attention.shown()


def _lets_on(m: ClientMachine) -> bool:
    """Whether a piece of a list that nobody asks for any more is acknowledged.

    Behind a vote something else may be awaited, and a network that loses datagrams can look like a server that awaits
    this. Who leaves has no vote to lose, and may not be heard before.
    """
    if m.leaving:
        return not m.profile.eats_awaited_acks
    return m.acknowledges_pieces and not m.controlled


def reset_by_others(m: ClientMachine) -> None:
    """The world was reset, and this session had no part in it."""
    m.reset_told = False
    m.clock.forget()
    m.resets_outstanding = 0
    m.notices.reset("the world was reset without this session having asked")


def denies_reset(m: ClientMachine, moved: Moved) -> bool:
    """What the clock says of a step tells whether there was the reset that was told of, which is dealt with then."""
    if moved is Moved.OTHERWISE:
        reset_by_others(m)
        return False
    m.reset_told = False
    m.anomaly("a reset was completed twice")
    return True


def _surplus_acknowledgement(m: ClientMachine, agent_id: int) -> None:
    """Between steps, a vote was acknowledged: late, or once more."""
    m.punctual = False
    m.anomaly(f"a vote of agent {agent_id} was acknowledged late or twice", astray=True)
    if agent_id in m.owed_acks:
        m.owed_acks.discard(agent_id)
        return
    last = agent_id == next(reversed(m.controlled))
    counted_twice(m, agent_id, too_late=last and (holds_back(m) or not m.profile.pipelining))
    if m.shares_the_barrier and not can_hold_back(m) and not m.suspect:
        m.suspect = (
            f"a vote of agent {agent_id} was acknowledged once more than it was sent: the simulator may count it "
            "for a vote that is still to come"
        )
