"""The agents of a simulator: which there are, what they have, and whose they are (OSP 1.1, sections 4.3 and 4.4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ospbridge.counts import numbered
from ospbridge.errors import AgentNotFound, AgentTaken, IncompleteListing, QueryTimeout, RemoteProtocolError
from ospbridge.interface import AgentEntry, AgentInterface, InterfaceValue
from ospbridge.osp.client.asking import SETTLING, answering, ask
from ospbridge.osp.client.bursts import collect
from ospbridge.osp.client.unanswered import WRITES_OTHERWISE
from ospbridge.osp.kinds import IndexedByKind, InfoPieces
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoAck,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewAck,
    AgentOverviewNext,
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    GetAgentInfo,
    GetAgentOverview,
    Message,
    RegisterForAgent,
    RegisterForAgentAck,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply

__all__ = ["agent_info", "deregister", "overview", "register", "who_is_missing"]

BURST_TOO_LARGE: Final = (
    "no part of it can be asked for alone: raise net.core.rmem_max (`ospbridge doctor` says to how much), or see "
    "whether the network loses datagrams"
)


def overview(
    m: ClientMachine, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[tuple[AgentEntry, ...]]:
    """All agents of the simulator. Also learns which of them other clients control."""
    numbering = _Numbering(m)
    _, pieces, complete = yield from collect(
        m,
        GetAgentOverview(),
        head=lambda x: x.agents if isinstance(x, AgentOverview) else None,
        piece=lambda x: x.index if isinstance(x, AgentOverviewNext) else None,
        ack=AgentOverviewAck(),
        what="agent overview",
        stray=stray,
        doubts=numbering.contradicts,
    )
    if not complete:
        raise IncompleteListing(
            f"{m.peer}: only {numbered(len(pieces), 'agent')} of the overview arrived", hint=BURST_TOO_LARGE
        )
    entries = []
    for _, piece in sorted(pieces.items()):
        assert isinstance(piece, AgentOverviewNext)
        entries.append(AgentEntry(piece.agent_id, piece.name, piece.type, piece.available != 0))
    m.agent_names = {entry.id: entry.name for entry in entries}
    m.foreign = frozenset(
        entry.name for entry in entries if not entry.available and entry.id not in m.controlled
    )
    if m.foreign:
        m.guarded = True
    return tuple(entries)


class _Numbering:
    """Whether overviews contradict the ids that agents are known by."""

    def __init__(self, m: ClientMachine) -> None:
        self._m = m
        self._came: list[dict[int, str]] = []
        """All different ones, of which one that comes twice is believed."""

    def contradicts(self, pieces: dict[int, Message]) -> bool:
        """Raises RemoteProtocolError where each one has other ids for the same agents."""
        names = _names(pieces)
        if self._m.agent_names.items() <= names.items():
            return False
        if names not in self._came:
            self._came.append(names)
        called = [sorted(came.values()) for came in self._came]
        if len(called) >= SETTLING and called.count(called[0]) == len(called):
            piece = pieces[len(pieces) - 1]
            assert isinstance(piece, AgentOverviewNext)
            raise RemoteProtocolError(
                f"{self._m.peer} gives agent {piece.name!r} another id in each overview",
                data=piece.encode(),
                offset=5,
                hint="the simulator must keep an agent's id throughout the session",
            )
        return True


def _names(pieces: dict[int, Message]) -> dict[int, str]:
    return {piece.agent_id: piece.name for piece in pieces.values() if isinstance(piece, AgentOverviewNext)}


def agent_info(m: ClientMachine, agent_id: int) -> Exchange[AgentInterface]:
    """The interface of an agent. Raises AgentNotFound for an id that the simulator does not know."""
    others = m.described - {agent_id}
    m.described.add(agent_id)
    found = yield from _info(m, agent_id)
    # Its pieces do not say of which agent they are: some may be late ones of another's.
    for _ in range(SETTLING if others and m.disturbed else 0):
        before, found = found, (yield from _info(m, agent_id))
        if found == before:
            break
    return found


def _info(m: ClientMachine, agent_id: int) -> Exchange[AgentInterface]:
    came = InfoPieces(agent_id)
    try:
        announced, pieces, complete = yield from collect(
            m,
            GetAgentInfo(agent_id),
            head=came.count,
            piece=came.index,
            ack=AgentInfoAck(),
            what=f"info of agent {agent_id}",
        )
    except IndexedByKind as found:
        m.send(AgentInfoAck())
        m.list_left = None
        announced, pieces, complete = found.head, found.pieces, True
    assert isinstance(announced, AgentInfo)
    if announced.agent_id != agent_id:
        raise AgentNotFound(f"{m.peer} knows no agent with id {agent_id} (ids count from the last overview)")
    if not complete:
        raise IncompleteListing(
            f"{m.peer}: only {len(pieces)} interface values of agent {agent_id} arrived, "
            f"{announced.inputs + announced.outputs + announced.infos} were announced",
            hint=BURST_TOO_LARGE,
        )
    values = []
    for _, piece in sorted(pieces.items()):
        assert isinstance(piece, AgentInfoNext)
        values.append(InterfaceValue(piece.name, piece.min, piece.max))
    outputs_at, infos_at = announced.inputs, announced.inputs + announced.outputs
    return AgentInterface(
        agent_id,
        announced.name,
        tuple(values[:outputs_at]),
        tuple(values[outputs_at:infos_at]),
        tuple(values[infos_at:]),
    )


def register(m: ClientMachine, agent: AgentInterface) -> Exchange[None]:
    """Take control of an agent. Raises AgentTaken."""
    answer = yield from ask(
        m,
        RegisterForAgent(agent.id),
        answering(RegisterForAgentAck, lambda x: x.agent_id == agent.id),
        what=f"agent {agent.name!r}",
    )
    if answer.status != 1:
        raise AgentTaken(
            f"agent {agent.name!r} of {m.peer} is controlled by another client", agents=(agent.name,)
        )
    m.controlled[agent.id] = agent
    m.echo.forget(agent.id)
    m.foreign -= {agent.name}
    m.clock.forget()


def deregister(m: ClientMachine, agent_id: int, *, limit: float | None = None) -> Exchange[bool]:
    """Give an agent back; True where this session controlled it."""
    answer = yield from ask(
        m,
        DeregisterFromAgent(agent_id),
        answering(DeregisterFromAgentAck, lambda x: x.agent_id == agent_id),
        what=f"agent {m.agent_names.get(agent_id, agent_id)!r}",
        limit=limit,
    )
    m.controlled.pop(agent_id, None)
    return answer.status == 1


def who_is_missing(m: ClientMachine, since: float) -> Exchange[tuple[str, str]]:
    """Why a barrier does not open, as far as an overview tells, and a hint; that is empty for the usual one.

    ``since``: when it was voted for. What nobody could read may have been what is missing.
    """
    unreadable = m.notices.unreadable_latest if m.notices.unreadable_at >= since else ""
    with suppress(QueryTimeout, RemoteProtocolError):
        there = {entry.id for entry in (yield from overview(m))}
        gone = [agent.name for agent_id, agent in m.controlled.items() if agent_id not in there]
        if gone:
            told = f"agent {gone[0]!r}" if len(gone) == 1 else f"agents {', '.join(map(repr, gone))}"
            hint = "see `ospbridge agents` for what there is now, and the simulator's own log for why"
            return f"{m.peer} does not offer {told} any more", hint
    if m.foreign:
        return "agents controlled by other clients, which must vote too: " + ", ".join(sorted(m.foreign)), ""
    if unreadable:
        return f"what came is not of OSP 1.1, the latest: {unreadable}", WRITES_OTHERWISE
    hint = "see whether it is paused; give it more time with step_timeout or reset_timeout, or --step-timeout"
    return "no other client controls an agent; the simulator itself may be paused or busy", hint
