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
from ospbridge.osp.queries import UNREADABLE, answering, ask
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = ["agent_info", "deregister", "overview", "register", "who_is_missing"]

BURST_TOO_LARGE: Final = (
    "no part of it can be asked for alone: raise net.core.rmem_max (`ospbridge doctor` says to how much), or see "
    "whether the network loses datagrams"
)


def overview(
    m: ClientMachine, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[tuple[AgentEntry, ...]]:
    """All agents of the simulator. Also learns which of them other clients control.

    Raises IncompleteListing, QueryTimeout; RemoteProtocolError where an agent has another id than before.
    """
    listed = yield from collect(
        m,
        GetAgentOverview(),
        head=lambda x: x.agents if isinstance(x, AgentOverview) else None,
        piece=lambda x: x.index if isinstance(x, AgentOverviewNext) else None,
        ack=AgentOverviewAck(),
        what="agent overview",
        stray=stray,
    )
    if not listed.complete:
        raise IncompleteListing(
            f"{m.peer}: only {pluralize(len(listed.pieces), 'agent')} of the overview arrived",
            hint=BURST_TOO_LARGE,
        )
    pieces = [piece for piece in listed.pieces.values() if isinstance(piece, AgentOverviewNext)]
    same = sorted(piece.name for piece in pieces) == sorted(m.agent_names.values())
    entries = []
    for piece in pieces:
        if m.agent_names.get(piece.agent_id, "" if same else piece.name) != piece.name:
            raise RemoteProtocolError(
                f"{m.peer} gives agent {piece.name!r} another id in each overview",
                data=piece.encode(),
                offset=5,
                hint="the simulator must keep an agent's id throughout the session",
            )
        entries.append(AgentEntry(piece.agent_id, piece.name, piece.type, piece.available != 0))
    m.agent_names = {entry.id: entry.name for entry in entries}
    m.foreign = frozenset(
        entry.name for entry in entries if not entry.available and entry.id not in m.controlled
    )
    m.episode.shared = m.episode.shared or bool(m.foreign)
    return tuple(entries)


class _InterfacePieces:
    """The indices of one agent's interface values, which may begin anew with inputs, outputs and infos.

    The document's layout can be read so; a NERD server has one index for all of them.
    """

    def __init__(self, agent_id: int) -> None:
        self._agent_id = agent_id
        self._kinds: tuple[int, ...] = ()
        """Behind how many pieces a kind ends."""
        self._first: AgentInfoNext | None = None
        self._came = 0
        self._offset = 0

    def count(self, message: Message) -> int | None:
        """How many pieces a head announces; None for what is none."""
        if not isinstance(message, AgentInfo) or message.agent_id not in (self._agent_id, 0):
            return None
        counts = (message.inputs, message.outputs, message.infos)
        if min(counts) < 0:
            return -1
        self._kinds = (message.inputs, message.inputs + message.outputs)
        self._first = None
        self._came = self._offset = 0
        return sum(counts)

    def index(self, message: Message) -> int | None:
        """Which piece a reply is; None for no piece."""
        if not isinstance(message, AgentInfoNext):
            return None
        first = self._first = self._first or message
        if self._came in self._kinds and message.index == first.index and message != first:
            self._offset = self._came
        self._came += 1
        return self._offset + message.index


def agent_info(m: ClientMachine, agent_id: int) -> Exchange[AgentInterface]:
    """The interface of an agent. Raises AgentNotFound for an id that the simulator does not know."""
    pieces = _InterfacePieces(agent_id)
    listed = yield from collect(
        m,
        GetAgentInfo(agent_id),
        head=pieces.count,
        piece=pieces.index,
        ack=AgentInfoAck(),
        what=f"info of agent {agent_id}",
    )
    head = listed.head
    assert isinstance(head, AgentInfo)
    if head.agent_id != agent_id:
        raise AgentNotFound(f"{m.peer} knows no agent with id {agent_id} (ids count from the last overview)")
    if not listed.complete:
        raise IncompleteListing(
            f"{m.peer}: only {len(listed.pieces)} interface values of agent {agent_id} arrived, "
            f"{head.inputs + head.outputs + head.infos} were announced",
            hint=BURST_TOO_LARGE,
        )
    values = []
    for piece in listed.pieces.values():
        assert isinstance(piece, AgentInfoNext)
        values.append(InterfaceValue(piece.name, piece.min, piece.max))
    outputs_at, infos_at = head.inputs, head.inputs + head.outputs
    return AgentInterface(
        agent_id,
        head.name,
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
    m.foreign -= {agent.name}


def deregister(m: ClientMachine, agent_id: int) -> Exchange[bool]:
    """Give an agent back; True where this session controlled it."""
    answer = yield from ask(
        m,
        DeregisterFromAgent(agent_id),
        answering(DeregisterFromAgentAck, lambda x: x.agent_id == agent_id),
        what=f"agent {m.agent_names.get(agent_id, agent_id)!r}",
    )
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
        gone = [agent.name for agent_id, agent in m.controlled.items() if agent_id not in there]
        if gone:
            told = f"agent {gone[0]!r}" if len(gone) == 1 else f"agents {', '.join(map(repr, gone))}"
            hint = "see `ospbridge agents` for what there is now, and the simulator's own log for why"
            return f"{m.peer} does not offer {told} any more", hint
    if m.foreign:
        names = ", ".join(sorted(m.foreign))
        return f"agents controlled by other clients, which must send their requests too: {names}", ""
    if came:
        return f"what came is not of OSP 1.1, the latest: {m.notices.undecodable[-1]}", UNREADABLE
    hint = "see whether it is paused; give it more time with step_timeout or reset_timeout, or --step-timeout"
    return (
        "the completion is missing: no other client controls an agent, the simulator may be paused or busy",
        hint,
    )
