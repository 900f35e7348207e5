"""Answers that are late from another question, and bytes that are no answer: neither is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.machine import OVERDUE_AT_MOST, ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentOverview,
    AgentOverviewNext,
    DeregisterFromAgentAck,
    DeregisterFromEventAck,
    Message,
    RegisterForAgentAck,
    RegisterForEventAck,
    RegisterForValueAck,
    SetValueAck,
    ValueContent,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD
from tests.osp.stage import give, next_timer, on_stage, sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client.machine import Exchange


QUESTIONS: dict[str, tuple[Callable[[ClientMachine], Exchange[Any]], Message, Message, Any]] = {
    "register": (
        lambda m: roster.register(m, m.controlled[1]),
        RegisterForAgentAck(2, 0),
        RegisterForAgentAck(1, 1),
        None,
    ),
    "deregister": (
        lambda m: roster.deregister(m, 1),
        DeregisterFromAgentAck(2, 0),
        DeregisterFromAgentAck(1, 1),
        True,
    ),
    "deregister an event": (
        lambda m: asking.deregister_event(m, 3),
        DeregisterFromEventAck(4),
        DeregisterFromEventAck(3),
        None,
    ),
    "value": (lambda m: asking.get_value(m, 7), ValueContent(8, "no"), ValueContent(7, "yes"), "yes"),
    "set": (lambda m: asking.set_value(m, 7, "1"), SetValueAck(8, 0), SetValueAck(7, 1), True),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_about_another_one_is_late_and_not_this_ones(question: str) -> None:
    exchange, late, answer, expected = QUESTIONS[question]
    machine, _ = on_stage(NERD)
    machine.begin(exchange(machine), 0.0)
    give(machine, late)
    assert not machine.finished
    assert machine.disturbed
    assert not machine.punctual
    give(machine, answer)
    assert machine.result() == expected


def test_an_agent_that_is_gone_is_believed_to_be_the_second_time() -> None:
    machine, _ = on_stage(NERD)
    machine.agent_names = {1: "a0", 2: "a1"}
    left = [AgentOverview(1), AgentOverviewNext(0, 1, "Agent", 1, "a0")]
    machine.begin(roster.overview(machine), 0.0)
    asked = 0
    while not machine.finished:
        if sent(machine).count(Code.GET_AGENT_OVERVIEW):
            asked += 1
            give(machine, *left)
        else:
            next_timer(machine)
    assert [entry.name for entry in machine.result()] == ["a0"]
    assert asked == 2
    assert machine.now < 1.0
    assert not machine.disturbed


@pytest.mark.parametrize("disturbed", [True, False])
def test_a_late_word_that_there_is_no_such_event_is_not_this_ones(disturbed: bool) -> None:
    machine, _ = on_stage(NERD)
    machine.disturbed = disturbed
    machine.begin(asking.register_event(machine, "/hit"), 0.0)
    give(machine, RegisterForEventAck(0))
    assert machine.finished is not disturbed, "a quiet network is asked once"
    if disturbed:
        give(machine, RegisterForEventAck(4))
        assert machine.result() == 4
        assert machine.events == {4: "/hit"}


def test_a_late_confirmation_of_other_values_does_not_stand_for_these() -> None:
    machine, _ = on_stage(DOCUMENT)
    machine.anomaly("a datagram came late")
    machine.begin(asking.observe(machine, {7: "/a", 8: "/b"}), 0.0)
    give(machine, RegisterForValueAck((3, 4)))
    assert not machine.finished
    give(machine, RegisterForValueAck((7, 8)))
    assert machine.result() == (7, 8)
    assert machine.observed == {7: "/a", 8: "/b"}


def test_an_overview_tells_who_is_free_and_who_is_with_others() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(roster.overview(machine), 0.0)
    pieces = [AgentOverviewNext(at, at + 1, "Agent", at % 2, f"a{at}") for at in (2, 0, 1)]
    give(machine, AgentOverview(3), *pieces)
    entries = machine.result()
    assert [(entry.id, entry.name, entry.available) for entry in entries] == [
        (1, "a0", False),
        (2, "a1", True),
        (3, "a2", False),
    ]
    assert machine.foreign == {"a2"}, "the first is ours"
    assert machine.agent_names == {1: "a0", 2: "a1", 3: "a2"}
    assert machine.guarded


# --- bytes that are no answer --------------------------------------------------------------------------------------


def test_garbage_that_never_ends_cannot_stop_the_time() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(asking.get_value(machine, 7), 0.0)
    machine.outgoing.clear()
    for number in range(1, OVERDUE_AT_MOST + 1):
        assert not machine.outgoing, number
        with pytest.raises(RemoteProtocolError):
            machine.receive(b"\xff", 1.0)
    assert decode_request(bytes(machine.outgoing[-1])).CODE == Code.GET_VALUE, "asked again"
