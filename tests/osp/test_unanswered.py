"""Questions that nobody answers, and those whose answers nobody can read: the errors say which it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from ospbridge.errors import QueryTimeout, RemoteProtocolError, SimulatorSilent
from ospbridge.interface import Endpoint
from ospbridge.osp.client import asking, listing, roster
from ospbridge.osp.client.connecting import ConnectMachine
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.unanswered import WRITES_OTHERWISE
from ospbridge.osp.messages import (
    AgentOverview,
    RegisterForEventAck,
    ValueIds,
)
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ospbridge.osp.client.machine import Exchange

AT_MOST: Final = 1000
MAIN: Final = Endpoint("127.0.0.1", 45454)
QUESTIONS: Final = pytest.mark.parametrize(
    "ask, answer",
    [
        (roster.overview, AgentOverview(0).encode()),
        (lambda m: listing.list_once(m, ".*"), ValueIds(0).encode()),
        (lambda m: asking.register_event(m, "/Event"), RegisterForEventAck(1).encode()),
    ],
    ids=["agents", "values", "event"],
)


def error_of(
    ask: Callable[[ClientMachine], Exchange[Any]], answer: bytes | None, *, head: bytes = b""
) -> QueryTimeout:
    """Of a question to a server whose every answer is these bytes, behind a legible head."""
    machine = ClientMachine(DOCUMENT, limits=Limits(query=1.0))
    machine.begin(ask(machine), 0.0)
    for _ in range(AT_MOST):
        if machine.finished:
            break
        asked = bool(machine.outgoing)
        machine.outgoing.clear()
        if asked and head:
            machine.receive(head, machine.now)
        if asked and answer is not None:
            with pytest.raises(RemoteProtocolError):
                machine.receive(answer, machine.now)
        assert machine.deadline is not None
        machine.handle_timer(machine.deadline)
    with pytest.raises(QueryTimeout) as caught:
        machine.result()
    return caught.value


@QUESTIONS
def test_answers_that_cannot_be_read_are_told_and_shown(
    ask: Callable[[ClientMachine], Exchange[Any]], answer: bytes
) -> None:
    error = error_of(ask, answer + b"\0\0")
    assert "what came is not of OSP 1.1" in error.message
    assert "2 bytes left" in error.message
    assert (answer + b"\0\0").hex(" ") in error.message
    assert error.hint == WRITES_OTHERWISE


@QUESTIONS
def test_silence_is_told_as_silence(ask: Callable[[ClientMachine], Exchange[Any]], answer: bytes) -> None:
    del answer
    error = error_of(ask, None)
    assert "not of OSP" not in error.message
    assert error.hint == QueryTimeout.default_hint


@pytest.mark.parametrize("answer, readable", [(b"\x06\1\0\0\0\1\0\0\0\0", False), (b"\x0b", True)])
def test_an_init_that_is_answered_illegibly_is_not_hinted_at_as_silence(
    answer: bytes, readable: bool
) -> None:
    machine = ConnectMachine(MAIN, None, limits=Limits(connect=1.0), now=0.0)
    machine.receive(answer, MAIN, 0.1)
    while machine.deadline < 1.0:
        machine.handle_timer(machine.deadline)
    with pytest.raises(SimulatorSilent) as caught:
        machine.handle_timer(machine.deadline)
    assert (WRITES_OTHERWISE in caught.value.hint) is not readable
    assert "45454" in caught.value.hint
