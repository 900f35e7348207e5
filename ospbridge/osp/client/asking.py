"""Exchanges that are harmless to repeat: queries and idempotent commands of OSP 1.1 (sections 4.2 to 4.5).

On silence they free a handler that may wait for an acknowledgement, and ask again; so an answer may come late, to what
was asked before. Answers name no more of their question than an id, if that: where they could be another question's,
on a network that disturbs, it is asked once more. Lists are in ``bursts``, those of agents in ``roster``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ospbridge.counts import numbered
from ospbridge.errors import (
    LocalProtocolError,
    QueryTimeout,
    ValueRejected,
)
from ospbridge.osp.client.attention import Question
from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply
from ospbridge.osp.client.unanswered import Unanswered
from ospbridge.osp.messages import (
    DeregisterFromEvent,
    DeregisterFromEventAck,
    DeregisterFromValue,
    DeregisterFromValueAck,
    End,
    EndAck,
    GetValue,
    Message,
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
    "SETTLING",
    "answering",
    "ask",
    "deregister_event",
    "end",
    "get_value",
    "observe",
    "register_event",
    "reset_communication",
    "set_value",
    "settled_value",
    "unobserve",
]

T = TypeVar("T")
M = TypeVar("M", bound=Message)
SETTLING: Final = 3
"""How often a variable is read again, or an agent's interface, at most, until two answers agree."""
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
    unanswered = Unanswered(m, request, what)
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
                if tries == 1:
                    m.patience = m.round_trips.took(m.now - started)
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
            raise unanswered.error(tries)
        m.anomaly(f"{request.CODE.name} met silence")
        m.retries += 1
        m.free_handler(StepCompletedAck(m.awaited))


def answering(kind: type[M], test: Callable[[M], bool] = lambda _: True) -> Callable[[Message], M | None]:
    """What ``ask`` takes for the answer: a message of that kind that stands the test."""

    def match(message: Message) -> M | None:
        return message if isinstance(message, kind) and test(message) else None

    return match


def _ask_twice(
    m: ClientMachine,
    request: Message,
    match: Callable[[Message], M | None],
    *,
    unless: Callable[[M], bool],
    what: str,
    stray: Callable[[Reply], None] | None = None,
) -> Exchange[M]:
    """As ``ask``; on a network that disturbs once more, ``unless`` an answer can be no other question's."""
    answer = yield from ask(m, request, match, what=what, stray=stray)
    if m.disturbed and not unless(answer):
        answer = yield from ask(m, request, match, what=what, stray=stray)
    return answer


def register_event(m: ClientMachine, name: str) -> Exchange[int]:
    """The local id of an event that is told from now on; 0 where the simulator has no such event."""
    _check_ascii(m, name)
    m.ever_registered_events = True
    answer = yield from _ask_twice(
        m,
        RegisterForEvent(name),
        # An id that stands for another name is a late answer to an earlier question. "Unknown" may be one, too.
        answering(RegisterForEventAck, lambda x: m.events.get(x.event_id, name) == name),
        unless=lambda x: x.event_id != 0,
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
        answering(DeregisterFromEventAck, lambda x: x.event_id == event_id),
        what=f"event {m.events.get(event_id, event_id)!r}",
    )
    m.events.pop(event_id, None)


def get_value(
    m: ClientMachine, value_id: int, *, stray: Callable[[Reply], None] | None = None
) -> Exchange[str | None]:
    """The content of a variable; None for an id that the simulator does not know."""
    answer = yield from _ask_twice(
        m,
        GetValue(value_id),
        # An id of 0 tells of what was not found elsewhere in the protocol; NERD has -1.
        answering(ValueContent, lambda x: x.value_id in (value_id, -1) or (not x.value_id and not x.content)),
        # "Unknown" does not say what: it may be the late answer to another question.
        unless=lambda x: x.value_id == value_id,
        what=f"value {value_id}",
        stray=stray,
    )
    return answer.content if answer.value_id == value_id else None


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
    first = value_id not in m.written
    m.written.add(value_id)
    answer = yield from _ask_twice(
        m,
        SetValue(value_id, content),
        answering(SetValueAck, lambda x: x.value_id == value_id),
        # What was written is not said: it may be what was written before.
        unless=lambda _: first,
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
    answer = yield from _ask_twice(
        m,
        RegisterForValue(tuple(ids)),
        answering(RegisterForValueAck),
        unless=lambda x: all(i in ids for i in x.answered(len(ids))),
        what=numbered(len(ids), "value"),
    )
    confirmed = tuple(i for i in answer.answered(len(ids)) if i in ids)
    m.observed.update({i: ids[i] for i in confirmed})
    return confirmed


def unobserve(m: ClientMachine, ids: tuple[int, ...]) -> Exchange[None]:
    """Stop having variables pushed."""
    if not m.profile.values_are_pushed:
        raise LocalProtocolError(f"values are not pushed by a server of profile {m.profile.name!r}")
    yield from ask(
        m, DeregisterFromValue(ids), answering(DeregisterFromValueAck), what=numbered(len(ids), "value")
    )
    for value_id in ids:
        m.observed.pop(value_id, None)


def end(m: ClientMachine, *, limit: float | None = None) -> Exchange[bool]:
    """Say goodbye; True where the simulator confirmed. Silence is no error: the limit is short."""
    m.ended = True
    limit = m.limits.close if limit is None else limit
    try:
        yield from ask(m, End(), answering(EndAck), what="goodbye", limit=limit)
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
            answering(ResetCommunicationAck),
            what="restart of the communication",
            limit=RESET_COMMUNICATION_PATIENCE,
        )
    except QueryTimeout:
        return False
    finally:
        m.controlled.clear()
    return True


def _check_ascii(m: ClientMachine, text: str) -> None:
    if m.profile.ascii_only and not text.isascii():
        raise LocalProtocolError(
            f"cannot send {text!r}: a server of profile {m.profile.name!r} loses everything but ASCII"
        )
