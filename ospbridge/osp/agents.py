"""The agents of a simulator: which there are, what they have, and whose they are (OSP 1.1, sections 4.3 and 4.4)."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ospbridge.errors import AgentNotFound, AgentTaken, IncompleteListing, RemoteProtocolError
from ospbridge.interface import AgentEntry, AgentInterface, InterfaceValue
from ospbridge.osp.lists import collect
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
from ospbridge.osp.queries import UNREADABLE, ask
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["agent_info", "deregister", "overview", "register", "who_is_missing"]

BURST_TOO_LARGE: Final = (
    "no part of it can be asked for alone: raise net.core.rmem_max (`ospbridge doctor` says to how much), or see "
    "whether the network loses datagrams"
)


def overview(m: ClientMachine) -> Exchange[tuple[AgentEntry, ...]]:
    """All agents of the simulator. Also learns which of them other clients control.

    Raises IncompleteListing, QueryTimeout; RemoteProtocolError where an agent has another id than before.
    """
    listed = yield from collect(
        m,
        GetAgentOverview(),
        AgentOverviewNext,
        count=lambda x: x.agents if isinstance(x, AgentOverview) else None,
        ack=AgentOverviewAck(),
        what="agent overview",
    )
    pieces = listed.pieces
    if not listed.complete:
        raise IncompleteListing(
            f"{m.peer}: only {pluralize(len(pieces), 'agent')} of the overview arrived", hint=BURST_TOO_LARGE
        )
    same = sorted(piece.name for piece in pieces) == sorted(m.agent_names.values())
    for piece in pieces:
        if m.agent_names.get(piece.agent_id, "" if same else piece.name) != piece.name:
            raise RemoteProtocolError(
                f"{m.peer} gives agent {piece.name!r} another id in each overview",
                data=piece.encode(),
                offset=5,
                hint="the simulator must keep an agent's id throughout the session",
            )
    entries = tuple(AgentEntry(each.agent_id, each.name, each.type, each.available != 0) for each in pieces)
    m.agent_names = {entry.id: entry.name for entry in entries}
    m.foreign = frozenset(
        entry.name for entry in entries if not entry.available and entry.id not in m.controlled
    )
    m.episode.shared = m.episode.shared or bool(m.foreign)
    return entries


def agent_info(m: ClientMachine, agent_id: int) -> Exchange[AgentInterface]:
    """The interface of an agent. Raises AgentNotFound for an id that the simulator does not know.

    The indices of its values may begin anew with inputs, outputs and infos: the document's layout can be read so. A
    NERD server has one index for all of them.
    """
    kinds: tuple[int, ...] = ()
    """Behind how many pieces a kind ends."""
    came = offset = 0
    first: AgentInfoNext | None = None

    def count(message: Message) -> int | None:
        nonlocal kinds, came, offset, first
        if not isinstance(message, AgentInfo) or message.agent_id not in (agent_id, 0):
            return None
        kinds = (message.inputs, message.inputs + message.outputs)
        came, offset, first = 0, 0, None
        counts = (message.inputs, message.outputs, message.infos)
        return -1 if min(counts) < 0 else sum(counts)

    def index(piece: AgentInfoNext) -> int:
        nonlocal came, offset, first
        first = first or piece
        # Where it is the first one once more, the list was sent again.
        if came in kinds and piece.index == first.index and piece != first:
            offset = came
        came += 1
        return offset + piece.index

    listed = yield from collect(
        m,
        GetAgentInfo(agent_id),
        AgentInfoNext,
        count=count,
        index=index,
        ack=AgentInfoAck(),
        what=f"info of agent {agent_id}",
    )
    head = listed.head
    assert isinstance(head, AgentInfo)
    if head.agent_id != agent_id:
        raise AgentNotFound(f"{m.peer} knows no agent with id {agent_id} (ids count from the last overview)")
    values = tuple(InterfaceValue(piece.name, piece.min, piece.max) for piece in listed.pieces)
    if not listed.complete:
        raise IncompleteListing(
            f"{m.peer}: only {len(values)} interface values of agent {agent_id} arrived, {listed.total} were announced",
            hint=BURST_TOO_LARGE,
        )
    outputs, infos = kinds
    return AgentInterface(agent_id, head.name, values[:outputs], values[outputs:infos], values[infos:])


def register(m: ClientMachine, agent: AgentInterface) -> Exchange[None]:
    """Take control of an agent. Raises AgentTaken."""
    request = RegisterForAgent(agent.id)
    what = f"agent {agent.name!r}"
    answer = yield from ask(m, request, RegisterForAgentAck, lambda x: x.agent_id == agent.id, what=what)
    if answer.status != 1:
        raise AgentTaken(f"{what} of {m.peer} is controlled by another client", agents=(agent.name,))
    m.controlled[agent.id] = agent
    m.foreign -= {agent.name}


def deregister(m: ClientMachine, agent_id: int) -> Exchange[bool]:
    """Give an agent back; True where this session controlled it."""
    request = DeregisterFromAgent(agent_id)
    what = f"agent {m.agent_names.get(agent_id, agent_id)!r}"
    answer = yield from ask(m, request, DeregisterFromAgentAck, lambda x: x.agent_id == agent_id, what=what)
    m.controlled.pop(agent_id, None)
    return answer.status == 1


def who_is_missing(m: ClientMachine, undecodable: int) -> Exchange[tuple[str, str]]:
    """Why a barrier does not open, as far as an overview tells, and a hint; that is empty for the usual one.

    ``undecodable``: how many datagrams were no replies of OSP before: one that came since may be what is missing.
    Raises QueryTimeout.
    """
    came = m.notices.undecodable_count > undecodable
    with suppress(RemoteProtocolError, IncompleteListing):
        there = {entry.id for entry in (yield from overview(m))}
        gone = [repr(agent.name) for agent_id, agent in m.controlled.items() if agent_id not in there]
        if gone:
            told = f"agent{'s' if len(gone) > 1 else ''} {', '.join(gone)}"
            hint = "see `ospbridge agents` for what there is now, and the simulator's own log for why"
            return f"{m.peer} does not offer {told} any more", hint
    if m.foreign:
        names = ", ".join(sorted(m.foreign))
        return f"agents controlled by other clients, which must send their requests too: {names}", ""
    if came:
        return f"what came is not of OSP 1.1, the latest: {m.notices.undecodable}", UNREADABLE
    return (
        "the completion is missing: no other client controls an agent, the simulator may be paused or busy",
        "see whether it is paused; give it more time with step_timeout or reset_timeout, or --step-timeout",
    )
