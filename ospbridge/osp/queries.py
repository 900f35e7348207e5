"""Exchanges that are harmless to repeat: queries and idempotent commands of OSP 1.1 (sections 4.2 to 4.5).

On silence they free a handler that may wait for an acknowledgement, and ask again; so an answer may come late, to what
was asked before. Whoever asked more than once therefore takes in what still comes before going on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from ospbridge.errors import LocalProtocolError, QueryTimeout, ValueRejected
from ospbridge.osp.messages import (
    DeregisterFromEvent,
    DeregisterFromEventAck,
    GetValue,
    Message,
    RegisterForEvent,
    RegisterForEventAck,
    RegisterForValue,
    RegisterForValueAck,
    SetValue,
    SetValueAck,
    Truncated,
    ValueContent,
)
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = [
    "UNREADABLE",
    "Question",
    "answering",
    "ask",
    "deregister_event",
    "get_value",
    "get_values",
    "observe",
    "pause",
    "register_event",
    "set_value",
]

T = TypeVar("T")
M = TypeVar("M", bound=Message)
LATE_ANSWERS: Final = 0.1
"""Seconds for which late answers are awaited behind a question that was asked more than once."""
BURST: Final = 128
"""Questions asked at once: a receive buffer of the usual size holds the answers."""
UNREADABLE: Final = "what answers there writes otherwise than OSP 1.1: its author can tell from these bytes"
"""A hint."""


class Question:
    """What is said of a question that was not answered; made when it is asked."""

    def __init__(self, m: ClientMachine, request: Message, what: str) -> None:
        self._m = m
        self._request = request
        self._what = what
        self._began = m.now
        self._undecodable = m.notices.undecodable_count

    @property
    def undecodable(self) -> int:
        """Datagrams that came since and are no replies of OSP."""
        return self._m.notices.undecodable_count - self._undecodable

    def error(self, tries: int) -> QueryTimeout:
        """What to raise. Silence is not the same as answers that nobody can decode."""
        m = self._m
        said = (
            f"{m.peer} did not answer {self._request.CODE.name} ({self._what}) within {m.now - self._began:.1f} s, "
            f"asked {pluralize(tries, 'time')}"
        )
        if not self.undecodable:
            return QueryTimeout(said)
        return QueryTimeout(
            f"{said}; what came is not of OSP 1.1 ({pluralize(self.undecodable, 'datagram')}), "
            f"the latest: {m.notices.undecodable[-1]}",
            hint=UNREADABLE,
        )


def answering(kind: type[M], test: Callable[[M], bool] = lambda _: True) -> Callable[[Message], M | None]:
    """What ``ask`` takes for the answer: a message of that kind that stands the test."""

    def match(message: Message) -> M | None:
        return message if isinstance(message, kind) and test(message) else None

    return match


def ask(
    m: ClientMachine,
    request: Message,
    match: Callable[[Message], T | None],
    *,
    what: str,
    stray: Callable[[Reply], None] | None = None,
    limit: float | None = None,
) -> Exchange[T]:
    """Send ``request`` until ``match`` makes something of a reply. Other replies go to ``stray``.

    Raises QueryTimeout after ``limit`` seconds, which are ``limits.query`` unless given.
    """
    question = Question(m, request, what)
    stray = stray or m.unexpected
    waits = m.waits()
    with m.limited(m.limits.query if limit is None else limit) as give_up:
        tries = 0
        while True:
            m.send(request)
            tries += 1
            again_at = min(m.now + waits.next(), give_up)
            while (reply := (yield again_at)) is not None:
                found = match(reply.message if isinstance(reply, Truncated) else reply)
                if found is None:
                    stray(reply)
                    continue
                if isinstance(reply, Truncated):
                    m.notices.remark(f"{m.peer} cut its answer about {what} at {reply.received} bytes")
                if tries > 1:
                    yield from pause(m, LATE_ANSWERS, stray)
                m.list_ack = None
                return found
            if m.now >= give_up:
                raise question.error(tries)
            m.notices.anomaly(f"{request.CODE.name} met silence")
            m.retries += 1
            m.free_handler()


def pause(m: ClientMachine, seconds: float, stray: Callable[[Reply], None]) -> Exchange[None]:
    """Take in what comes in so many seconds."""
    with m.limited(seconds) as until:
        while m.now < until:
            reply = yield until
            if reply is None:
                return
            stray(reply)


def register_event(m: ClientMachine, name: str) -> Exchange[int]:
    """The local id of an event that is told from now on; 0 where the simulator has no such event."""
    _check_ascii(m, name)
    m.events_used = True
    answer = yield from ask(
        m,
        RegisterForEvent(name),
        # An id that stands for another name is a late answer to an earlier question.
        answering(RegisterForEventAck, lambda x: m.events.get(x.event_id, name) == name),
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
    m: ClientMachine,
    value_id: int,
    *,
    stray: Callable[[Reply], None] | None = None,
) -> Exchange[str | None]:
    """The content of a variable; None for an id that the simulator does not know."""
    answer = yield from ask(
        m,
        GetValue(value_id),
        # An id of 0 tells of what was not found elsewhere in the protocol; a NERD server has -1.
        answering(ValueContent, lambda x: x.value_id in (value_id, -1) or (not x.value_id and not x.content)),
        what=f"value {value_id}",
        stray=stray,
    )
    return answer.content if answer.value_id == value_id else None


def get_values(
    m: ClientMachine, value_ids: Sequence[int], *, stray: Callable[[Reply], None]
) -> Exchange[dict[int, str]]:
    """The contents of many variables, by id: asked in bursts, the unanswered ones again. Those unknown are missing.

    One by one 37 of them took 4.2 s where 2 % of the datagrams are lost. Raises QueryTimeout.
    """
    found: dict[int, str] = {}
    missing = dict.fromkeys(value_ids)
    with m.limited(m.limits.query) as give_up:
        waits, tries = m.waits(), 0
        question = Question(m, GetValue(next(iter(missing), 0)), pluralize(len(missing), "value"))
        while missing:
            asked = [value_id for value_id, _ in zip(missing, range(BURST), strict=False)]
            for value_id in asked:
                m.send(GetValue(value_id))
            tries += 1
            awaited = set(asked)
            again_at = min(m.now + waits.next(), give_up)
            while awaited and (reply := (yield again_at)) is not None:
                if isinstance(reply, ValueContent) and reply.value_id in awaited:
                    found[reply.value_id] = reply.content
                    awaited.discard(reply.value_id)
                    del missing[reply.value_id]
                    again_at = min(m.now + LATE_ANSWERS, give_up) if tries > 1 else again_at
                elif isinstance(reply, ValueContent) and reply.value_id == -1:
                    # It does not say which one is unknown.
                    return found
                else:
                    stray(reply)
            if not awaited:
                continue
            if m.now >= give_up:
                raise question.error(tries)
            m.retries += len(awaited)
            m.free_handler()
    return found


def set_value(m: ClientMachine, value_id: int, content: str, *, name: str = "") -> Exchange[bool]:
    """Write a variable; False for an unknown id. Raises ValueRejected where the text does not parse."""
    _check_ascii(m, content)
    answer = yield from ask(
        m,
        SetValue(value_id, content),
        answering(SetValueAck, lambda x: x.value_id == value_id),
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
        m, RegisterForValue(tuple(ids)), answering(RegisterForValueAck), what=pluralize(len(ids), "value")
    )
    confirmed = tuple(i for i in answer.answered(len(ids)) if i in ids)
    m.values.observed.update({i: ids[i] for i in confirmed})
    return confirmed


def _check_ascii(m: ClientMachine, text: str) -> None:
    if m.profile.ascii_only and not text.isascii():
        raise LocalProtocolError(
            f"cannot send {text!r}: a server of profile {m.profile.name!r} loses everything but ASCII"
        )
