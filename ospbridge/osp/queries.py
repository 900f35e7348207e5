"""Exchanges that are harmless to repeat: queries and idempotent commands of OSP 1.1 (sections 4.2 to 4.5).

On silence they free a handler that may wait for an acknowledgement, and ask again; whoever asked more than once takes
in late answers before going on.
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
from ospbridge.osp.timing import waits
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = [
    "UNREADABLE",
    "Question",
    "ask",
    "deregister_event",
    "get_value",
    "get_values",
    "observe",
    "pause",
    "register_event",
    "set_value",
]

M = TypeVar("M", bound=Message)
LATE_ANSWERS: Final = 0.1
"""Seconds for which late answers are awaited behind a question that was asked more than once."""
BURST: Final = 128
"""Questions asked at once: a receive buffer of the usual size holds the answers."""
UNREADABLE: Final = "what answers there writes otherwise than OSP 1.1: its author can tell from these bytes"
"""A hint."""


class Question:
    """The tries of one question, until ``give_up``; ``what`` it is about."""

    def __init__(self, m: ClientMachine, what: str, give_up: float) -> None:
        self.tries = 0
        self.give_up = give_up
        self._m = m
        self._what = what
        self._began = m.now
        self._undecodable = m.notices.undecodable_count
        self._waits = waits()

    def ask(self, *requests: Message) -> float:
        """Send it; until when an answer is awaited."""
        for request in requests:
            self._m.send(request)
        self.tries += 1
        return min(self._m.now + next(self._waits), self.give_up)

    def met_silence(self, request: Message) -> None:
        """It will be asked again. Raises QueryTimeout where its time is over."""
        m = self._m
        if m.now >= self.give_up:
            raise self._error(request)
        m.notices.anomaly(f"{request.CODE.name} met silence")
        m.retries += 1

    def _error(self, request: Message) -> QueryTimeout:
        """Silence is not the same as answers that nobody can decode."""
        m = self._m
        told = (
            f"{m.peer} did not answer {request.CODE.name} ({self._what}) within {m.now - self._began:.1f} s, "
            f"asked {pluralize(self.tries, 'time')}"
        )
        undecodable = m.notices.undecodable_count - self._undecodable
        if not undecodable:
            return QueryTimeout(told)
        return QueryTimeout(
            f"{told}; what came is not of OSP 1.1 ({pluralize(undecodable, 'datagram')}), "
            f"the latest: {m.notices.undecodable}",
            hint=UNREADABLE,
        )


def ask(
    m: ClientMachine,
    request: Message,
    answer: type[M],
    fits: Callable[[M], bool] = lambda _: True,
    *,
    what: str,
    limit: float | None = None,
) -> Exchange[M]:
    """Send ``request`` until an ``answer`` comes that ``fits``. Other replies are ``m.stray``.

    Raises QueryTimeout after ``limit`` seconds, which are ``limits.query`` unless given.
    """
    with m.limited(m.limits.query if limit is None else limit) as give_up:
        question = Question(m, what, give_up)
        while True:
            again_at = question.ask(request)
            while (reply := (yield again_at)) is not None:
                message = reply.message if isinstance(reply, Truncated) else reply
                if not (isinstance(message, answer) and fits(message)):
                    m.stray(reply)
                    continue
                if isinstance(reply, Truncated):
                    m.notices.remark(f"{m.peer} cut its answer about {what} at {reply.received} bytes")
                if question.tries > 1:
                    yield from pause(m, LATE_ANSWERS)
                m.list_ack = None
                return message
            question.met_silence(request)
            m.send_spare_acks()


def pause(m: ClientMachine, seconds: float) -> Exchange[None]:
    """Take in what comes in so many seconds."""
    with m.limited(seconds) as until:
        while m.now < until and (reply := (yield until)) is not None:
            m.stray(reply)


def register_event(m: ClientMachine, name: str) -> Exchange[int]:
    """The local id of an event that is told from now on; 0 where the simulator has no such event."""
    _check_ascii(m, name)
    m.events_used = True
    answer = yield from ask(
        m,
        RegisterForEvent(name),
        RegisterForEventAck,
        # An id that stands for another name is a late answer to an earlier question.
        lambda x: m.events.get(x.event_id, name) == name,
        what=f"event {name!r}",
    )
    if answer.event_id:
        m.events[answer.event_id] = name
    return answer.event_id


def deregister_event(m: ClientMachine, event_id: int) -> Exchange[None]:
    """Stop being told of an event."""
    what = f"event {m.events.get(event_id, event_id)!r}"
    request = DeregisterFromEvent(event_id)
    yield from ask(m, request, DeregisterFromEventAck, lambda x: x.event_id == event_id, what=what)
    m.events.pop(event_id, None)


def get_value(m: ClientMachine, value_id: int) -> Exchange[str | None]:
    """The content of a variable; None for an id that the simulator does not know."""
    answer = yield from ask(
        m,
        GetValue(value_id),
        ValueContent,
        # An id of 0 tells of what was not found elsewhere in the protocol; a NERD server has -1.
        lambda x: x.value_id in (value_id, -1) or (not x.value_id and not x.content),
        what=f"value {value_id}",
    )
    return answer.content if answer.value_id == value_id else None


def get_values(m: ClientMachine, value_ids: Sequence[int]) -> Exchange[dict[int, str]]:
    """The contents of many variables, by id: asked in bursts, the unanswered ones again. Those unknown are missing.

    One by one 37 of them took 4.2 s where 2 % of the datagrams are lost. Raises QueryTimeout.
    """
    found: dict[int, str] = {}
    missing = dict.fromkeys(value_ids)
    with m.limited(m.limits.query) as give_up:
        question = Question(m, pluralize(len(missing), "value"), give_up)
        while missing:
            awaited = dict.fromkeys(list(missing)[:BURST])
            again_at = question.ask(*map(GetValue, awaited))
            while awaited and (reply := (yield again_at)) is not None:
                if isinstance(reply, ValueContent) and reply.value_id in awaited:
                    found[reply.value_id] = reply.content
                    del awaited[reply.value_id], missing[reply.value_id]
                    if question.tries > 1:
                        again_at = min(m.now + LATE_ANSWERS, give_up)
                elif isinstance(reply, ValueContent) and reply.value_id == -1:
                    # It does not say which one is unknown.
                    return found
                else:
                    m.stray(reply)
            if awaited:
                question.met_silence(GetValue(0))
                m.send_spare_acks()
    return found


def set_value(m: ClientMachine, value_id: int, content: str, *, name: str = "") -> Exchange[bool]:
    """Write a variable; False for an unknown id. Raises ValueRejected where the text does not parse."""
    _check_ascii(m, content)
    what = f"value {name or value_id}"
    request = SetValue(value_id, content)
    answer = yield from ask(m, request, SetValueAck, lambda x: x.value_id == value_id, what=what)
    if answer.status == 0:
        raise ValueRejected(f"{m.peer} could not parse {content!r} for {name or value_id}")
    return answer.status == 1


def observe(m: ClientMachine, ids: dict[int, str]) -> Exchange[tuple[int, ...]]:
    """Have variables pushed behind each completion; the ids that were confirmed.

    On servers that push none a registration is useless and can be deadly.
    """
    if not m.profile.values_are_pushed:
        raise LocalProtocolError(
            f"values are not pushed by a server of profile {m.profile.name!r}", hint="read them between steps"
        )
    request = RegisterForValue(tuple(ids))
    answer = yield from ask(m, request, RegisterForValueAck, what=pluralize(len(ids), "value"))
    confirmed = tuple(i for i in answer.answered(len(ids)) if i in ids)
    m.values.observed.update({i: ids[i] for i in confirmed})
    return confirmed


def _check_ascii(m: ClientMachine, text: str) -> None:
    if m.profile.ascii_only and not text.isascii():
        raise LocalProtocolError(
            f"cannot send {text!r}: a server of profile {m.profile.name!r} loses everything but ASCII"
        )
