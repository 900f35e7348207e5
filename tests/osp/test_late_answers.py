"""Answers that are late from another question, and bytes that are no answer: neither is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import RemoteProtocolError
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.machine import OVERDUE_AT_MOST, ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
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


def test_the_info_of_another_agent_is_not_this_ones() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(roster.agent_info(machine, 1), 0.0)
    give(machine, AgentInfo(2, 1, 0, 0, "other"), AgentInfo(1, 1, 0, 1, "agent"))
    give(machine, AgentInfoNext(1, 0.0, 2.0, "/info"), AgentInfoNext(0, -1.0, 1.0, "/in"))
    found = machine.result()
    assert (found.id, found.name) == (1, "agent")
    assert [(value.name, value.min, value.max) for value in found.inputs] == [("/in", -1.0, 1.0)]
    assert found.outputs == ()
    assert [(value.name, value.min, value.max) for value in found.infos] == [("/info", 0.0, 2.0)]


def test_an_overview_that_lacks_a_known_agent_is_asked_for_again() -> None:
    machine, _ = on_stage(NERD)
    whole = [AgentOverview(2), *(AgentOverviewNext(at, at + 1, "Agent", 1, f"a{at}") for at in range(2))]
    machine.begin(roster.overview(machine), 0.0)
    give(machine, *whole)
    machine.begin(roster.overview(machine), 0.0)
    machine.outgoing.clear()
    give(machine, AgentOverview(1), whole[1])
    assert not machine.finished
    next_timer(machine)
    give(machine, *whole)
    assert len(machine.result()) == 2


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


def test_a_list_with_two_heads_is_not_believed_however_complete_but_asked_for_again() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(roster.overview(machine), 0.0)
    whole = (AgentOverview(1), AgentOverviewNext(0, 1, "Agent", 1, "a"))
    give(machine, AgentOverview(2), *whole)
    assert not machine.finished
    machine.outgoing.clear()
    next_timer(machine)
    assert Code.GET_AGENT_OVERVIEW in [data[0] for data in machine.outgoing]
    give(machine, *whole)
    assert [entry.name for entry in machine.result()] == ["a"]


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


@pytest.mark.parametrize("no_id", [0, -1])
def test_a_variable_that_is_not_known_may_be_told_by_an_id_that_is_none(no_id: int) -> None:
    machine, _ = on_stage(DOCUMENT)
    machine.begin(asking.get_value(machine, 7), 0.0)
    give(machine, ValueContent(no_id, ""))
    assert machine.result() is None
    machine.begin(asking.get_value(machine, 7), 0.0)
    give(machine, ValueContent(0, "of another one"))
    assert not machine.finished, "an id of 0 may be a variable's"
