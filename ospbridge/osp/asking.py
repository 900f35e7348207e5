"""Exchanges that are harmless to repeat: queries and idempotent commands of OSP 1.1 (sections 4.2 to 4.5).

On silence they free a handler that may wait for an acknowledgement, and ask again; pieces of a list are merged by
index over the tries. Lists come in one burst without flow control, so single pieces get lost: count and index are
checked, never trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    IncompleteListing,
    LocalProtocolError,
    QueryTimeout,
    RemoteProtocolError,
    ValueRejected,
)
from ospbridge.interface import AgentEntry, AgentInterface, InterfaceValue
from ospbridge.osp.attention import Question
from ospbridge.osp.bursts import collect
from ospbridge.osp.client import ClientMachine, Exchange, Reply
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
    DeregisterFromEvent,
    DeregisterFromEventAck,
    DeregisterFromValue,
    DeregisterFromValueAck,
    End,
    EndAck,
    GetAgentInfo,
    GetAgentOverview,
    GetValue,
    Message,
    RegisterForAgent,
    RegisterForAgentAck,
    RegisterForEvent,
    RegisterForEventAck,
    RegisterForValue,
    RegisterForValueAck,
    ResetCommunication,
    ResetCommunicationAck,
    SetValue,
    SetValueAck,
    StepCompletedAck,
    Truncated,
    ValueContent,
)

__all__ = [
    "LAST_WORD",
    "agent_info",
    "ask",
    "deregister",
    "deregister_event",
    "end",
    "get_value",
    "observe",
    "overview",
    "register",
    "register_event",
    "reset_communication",
    "set_value",
    "settled_value",
    "unobserve",
    "who_is_missing",
]

T = TypeVar("T")
M = TypeVar("M", bound=Message)
SETTLING = 3
"""How often a variable is read again, at most, until two answers agree."""
LAST_WORD: Final = 1.0
"""Seconds beyond the limit of a step or reset for an answer to what was asked just before it."""
RESET_COMMUNICATION_PATIENCE = 0.3
"""Seconds to wait for RESET_COMMUNICATION_ACK: the requester misses it in 5 to 25 % of the tries."""


def ask(
    m: ClientMachine,
    request: Message,
    match: Callable[[Message], T | None],
    *,
    what: str,
    stray: Callable[[Reply], None] | None = None,
    limit: float | None = None,
) -> Exchange[T]:
    """Send ``request`` until ``match`` makes something of a reply. Other replies go to ``stray``."""
    started = m.now
    give_up = min(started + (m.limits.query if limit is None else limit), m.no_later)
    waits = m.waits()
    question = Question(m.attention)
    tries = 0
    while True:
        m.send(request)
        question.asked()
        tries += 1
        again_at = min(m.now + waits.next(), give_up)
        while not question.overtaken:
            reply = yield again_at
            if reply is None:
                break
            message = reply.message if isinstance(reply, Truncated) else reply
            found = match(message)
            if found is not None:
                m.answered(tries)
                question.answered()
                if isinstance(reply, Truncated):
                    m.notices.remark(f"{m.peer} cut its answer about {what} at {reply.received} bytes")
                return found
            (stray or m.unexpected)(reply)
        else:
            # The handler is idle by now: nothing has to be acknowledged blindly.
            waits = m.waits()
            continue
        if m.now >= give_up:
            raise QueryTimeout(
                f"{m.peer} did not answer {request.CODE.name} ({what}) within {m.now - started:.1f} s, "
                f"asked {tries} times"
            )
        m.anomaly(f"{request.CODE.name} met silence")
        m.retries += 1
        m.free_handler(StepCompletedAck(m.awaited))


def _answer(kind: type[M], test: Callable[[M], bool] = lambda _: True) -> Callable[[Message], M | None]:
    def match(message: Message) -> M | None:
        return message if isinstance(message, kind) and test(message) else None

    return match


def overview(
    m: ClientMachine, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[tuple[AgentEntry, ...]]:
    """All agents of the simulator. Also learns which of them other clients control."""
    _, pieces, complete = yield from collect(
        m,
        GetAgentOverview(),
        head=lambda x: x.agents if isinstance(x, AgentOverview) else None,
        piece=lambda x: x.index if isinstance(x, AgentOverviewNext) else None,
        ack=AgentOverviewAck(),
        what="agent overview",
        stray=stray,
    )
    if not complete:
        raise IncompleteListing(f"{m.peer}: only {len(pieces)} agents of the overview arrived")
    entries = []
    for _, piece in sorted(pieces.items()):
        assert isinstance(piece, AgentOverviewNext)
        entries.append(AgentEntry(piece.agent_id, piece.name, piece.type, piece.available == 1))
    m.agent_names = {entry.id: entry.name for entry in entries}
    m.foreign = frozenset(
        entry.name for entry in entries if not entry.available and entry.id not in m.controlled
    )
    if m.foreign:
        m.guarded = True
    return tuple(entries)


def agent_info(m: ClientMachine, agent_id: int) -> Exchange[AgentInterface]:
    """The interface of an agent. Raises AgentNotFound for an id that the simulator does not know."""
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
        announced, pieces, complete = found.head, found.pieces, True
    assert isinstance(announced, AgentInfo)
    if announced.agent_id != agent_id:
        raise AgentNotFound(f"{m.peer} knows no agent with id {agent_id} (ids count from the last overview)")
    if not complete:
        raise IncompleteListing(
            f"{m.peer}: only {len(pieces)} interface values of agent {agent_id} arrived, "
            f"{announced.inputs + announced.outputs + announced.infos} were announced"
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
        _answer(RegisterForAgentAck, lambda x: x.agent_id == agent.id),
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
        _answer(DeregisterFromAgentAck, lambda x: x.agent_id == agent_id),
        what=f"agent {m.agent_names.get(agent_id, agent_id)!r}",
        limit=limit,
    )
    m.controlled.pop(agent_id, None)
    return answer.status == 1


def register_event(m: ClientMachine, name: str) -> Exchange[int]:
    """The local id of an event that is told from now on; 0 where the simulator has no such event."""
    _check_ascii(m, name)
    m.ever_registered_events = True
    answer = yield from ask(
        m,
        RegisterForEvent(name),
        # An id that stands for another name is a late answer to an earlier question.
        _answer(RegisterForEventAck, lambda x: m.events.get(x.event_id, name) == name),
        what=f"event {name!r}",
    )
    if answer.event_id:
        m.events[answer.event_id] = name
    return answer.event_id


def deregister_event(m: ClientMachine, event_id: int) -> Exchange[None]:
    """Stop being told of an event."""
    yield from ask(
        m,
        DeregisterFromEvent(event_id),
        _answer(DeregisterFromEventAck, lambda x: x.event_id == event_id),
        what=f"event {m.events.get(event_id, event_id)!r}",
    )
    m.events.pop(event_id, None)


def get_value(
    m: ClientMachine, value_id: int, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[str | None]:
    """The content of a variable; None for an id that the simulator does not know."""
    for _ in range(1 + m.disturbed):
        answer = yield from ask(
            m,
            GetValue(value_id),
            _answer(ValueContent, lambda x: x.value_id in (value_id, -1)),
            what=f"value {value_id}",
            stray=stray,
        )
        if answer.value_id == value_id:
            return answer.content
        # "Unknown" does not say what: it may be the late answer to another question.
    return None


def settled_value(
    m: ClientMachine, value_id: int, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[str | None]:
    """As ``get_value``; on a network that disturbs, read until two answers agree.

    The first may be the late answer to a question of long ago.
    """
    content = yield from get_value(m, value_id, stray=stray)
    for _ in range(SETTLING if m.disturbed else 0):
        before, content = content, (yield from get_value(m, value_id, stray=stray))
        if content == before:
            break
    return content


def set_value(
    m: ClientMachine, value_id: int, content: str, *, name: str = "", sets_pace: bool = True
) -> Exchange[bool]:
    """Write a variable; False for an unknown id. Raises ValueRejected where the text does not parse.

    ``sets_pace``: for all we know it may say how long a step takes.
    """
    _check_ascii(m, content)
    if sets_pace:
        m.clock.unlearn()
    else:
        m.clock.forget()
    answer = yield from ask(
        m,
        SetValue(value_id, content),
        _answer(SetValueAck, lambda x: x.value_id == value_id),
        what=f"value {name or value_id}",
    )
    if answer.status == 0:
        raise ValueRejected(f"{m.peer} could not parse {content!r} for {name or value_id}")
    return answer.status == 1


def observe(m: ClientMachine, ids: dict[int, str]) -> Exchange[tuple[int, ...]]:
    """Have variables pushed behind each completion. Returns the ids that were confirmed.

    Only where the profile pushes values: on other servers a registration is useless and can be deadly.
    """
    if not m.profile.values_are_pushed:
        raise LocalProtocolError(
            f"values are not pushed by a server of profile {m.profile.name!r}", hint="read them between steps"
        )
    answer = yield from ask(
        m, RegisterForValue(tuple(ids)), _answer(RegisterForValueAck), what=f"{len(ids)} values"
    )
    confirmed = tuple(i for i in answer.answered(len(ids)) if i in ids)
    m.observed.update({i: ids[i] for i in confirmed})
    return confirmed


def unobserve(m: ClientMachine, ids: tuple[int, ...]) -> Exchange[None]:
    """Stop having variables pushed."""
    if not m.profile.values_are_pushed:
        raise LocalProtocolError(f"values are not pushed by a server of profile {m.profile.name!r}")
    yield from ask(m, DeregisterFromValue(ids), _answer(DeregisterFromValueAck), what=f"{len(ids)} values")
    for value_id in ids:
        m.observed.pop(value_id, None)


def end(m: ClientMachine, *, limit: float | None = None) -> Exchange[bool]:
    """Say goodbye; True where the simulator confirmed. Silence is no error: the limit is short."""
    m.ended = True
    limit = m.limits.close if limit is None else limit
    try:
        yield from ask(m, End(), _answer(EndAck), what="goodbye", limit=limit)
    except QueryTimeout:
        return False
    m.controlled.clear()
    return True


def reset_communication(m: ClientMachine) -> Exchange[bool]:
    """Disconnect every client of the simulator, this one too; True where it was confirmed to us."""
    # From here on a handler that is gone is what was asked for.
    m.ended = True
    try:
        yield from ask(
            m,
            ResetCommunication(),
            _answer(ResetCommunicationAck),
            what="restart of the communication",
            limit=RESET_COMMUNICATION_PATIENCE,
        )
    except QueryTimeout:
        return False
    finally:
        m.controlled.clear()
    return True


def who_is_missing(m: ClientMachine) -> Exchange[str]:
    """Why a barrier does not open, as far as an overview tells."""
    with suppress(QueryTimeout, RemoteProtocolError):
        yield from overview(m)
    if m.foreign:
        return "agents controlled by other clients, which must vote too: " + ", ".join(sorted(m.foreign))
    return "no other client controls an agent; the simulator itself may be paused or busy"


def _check_ascii(m: ClientMachine, text: str) -> None:
    if m.profile.ascii_only and not text.isascii():
        raise LocalProtocolError(
            f"cannot send {text!r}: a server of profile {m.profile.name!r} loses everything but ASCII"
        )
