"""Questions and commands that are harmless to repeat: which answer is theirs, when they go again, how they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from ospbridge.errors import (
    LocalProtocolError,
    QueryTimeout,
    RemoteProtocolError,
    ValueRejected,
)
from ospbridge.osp import agents, queries
from ospbridge.osp.client import ClientMachine, Exchange
from ospbridge.osp.codes import Code
from ospbridge.osp.lists import find_value, list_values
from ospbridge.osp.messages import (
    AgentOverview,
    DeregisterFromAgentAck,
    DeregisterFromEventAck,
    Message,
    RegisterForAgentAck,
    RegisterForEventAck,
    RegisterForValueAck,
    SetValueAck,
    ValueContent,
    ValueIds,
)
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.queries import UNREADABLE
from ospbridge.osp.reset import reset
from ospbridge.osp.timing import Limits
from tests.osp.stage import SHORT, give, next_timer, on_stage, sent

QUESTIONS: dict[str, tuple[Callable[[ClientMachine], Exchange[Any]], Message, Message, Any]] = {
    "register": (
        lambda m: agents.register(m, m.controlled[1]),
        RegisterForAgentAck(2, 0),
        RegisterForAgentAck(1, 1),
        None,
    ),
    "deregister": (
        lambda m: agents.deregister(m, 1),
        DeregisterFromAgentAck(2, 0),
        DeregisterFromAgentAck(1, 1),
        True,
    ),
    "deregister an event": (
        lambda m: queries.deregister_event(m, 3),
        DeregisterFromEventAck(4),
        DeregisterFromEventAck(3),
        None,
    ),
    "value": (lambda m: queries.get_value(m, 7), ValueContent(8, "no"), ValueContent(7, "yes"), "yes"),
    "no value": (lambda m: queries.get_value(m, 7), ValueContent(0, "no"), ValueContent(-1, ""), None),
    "no value, of id 0": (lambda m: queries.get_value(m, 7), ValueContent(8, ""), ValueContent(0, ""), None),
    "set": (lambda m: queries.set_value(m, 7, "1"), SetValueAck(8, 0), SetValueAck(7, 1), True),
    "set, of an unknown id": (
        lambda m: queries.set_value(m, 7, "1"),
        SetValueAck(8, 0),
        SetValueAck(7, 2),
        False,
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_about_another_one_is_late_and_not_this_ones(question: str) -> None:
    exchange, late, answer, expected = QUESTIONS[question]
    machine, _ = on_stage(NERD)
    machine.begin(exchange(machine), 0.0)
    give(machine, late)
    assert not machine.finished
    assert [notice.text for notice in machine.notices] == [f"{late.CODE.name} came late or twice"]
    give(machine, answer)
    assert machine.result() == expected


def test_a_question_is_asked_again_with_patience_and_behind_what_frees_a_handler() -> None:
    machine, _ = on_stage(NERD)
    machine.send_spare_acks()
    assert machine.outgoing == [b"\x56\0\0\0\0x"]
    machine.outgoing.clear()
    machine.begin(queries.get_value(machine, 7), 0.0)
    asked = []
    while not machine.finished:
        asked.append((machine.now, sent(machine)))
        next_timer(machine)
    again = [Code.NEXT_SIMULATION_STEP_COMPLETED_ACK, Code.GET_VALUE]
    assert asked == [(0.0, [Code.GET_VALUE]), (0.25, again), (0.75, again), (1.75, again)]
    assert machine.now == SHORT.query
    assert machine.retries == 3
    with pytest.raises(
        QueryTimeout, match=r"did not answer GET_VALUE \(value 7\) within 2\.0 s, asked 4 times"
    ):
        machine.result()


def test_behind_a_question_that_was_asked_twice_late_answers_are_awaited_for_100_ms() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(queries.get_value(machine, 7), 0.0)
    next_timer(machine)
    give(machine, ValueContent(7, "yes"))
    assert not machine.finished
    give(machine, ValueContent(7, "no"))
    next_timer(machine)
    assert machine.now == pytest.approx(0.35)
    assert machine.result() == "yes"


def test_the_acknowledgement_of_a_list_is_said_again_where_its_handler_may_still_await_it() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(agents.overview(machine), 0.0)
    give(machine, AgentOverview(0))
    machine.begin(queries.get_value(machine, 7), 0.0)
    sent(machine)
    next_timer(machine)
    assert sent(machine) == [Code.NEXT_SIMULATION_STEP_COMPLETED_ACK, Code.AGENT_OVERVIEW_ACK, Code.GET_VALUE]
    give(machine, ValueContent(7, "1"))
    next_timer(machine)
    machine.begin(queries.get_value(machine, 7), machine.now)
    sent(machine)
    next_timer(machine)
    assert Code.AGENT_OVERVIEW_ACK not in sent(machine), "the handler has answered since"


def test_events_are_known_by_the_id_they_were_given() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(queries.register_event(machine, "/hit"), 0.0)
    assert machine.events_used
    give(machine, RegisterForEventAck(4))
    assert (machine.result(), machine.events) == (4, {4: "/hit"})
    machine.begin(queries.register_event(machine, "/other"), 0.0)
    give(machine, RegisterForEventAck(4))
    assert not machine.finished, "it is a late answer about the first one"
    give(machine, RegisterForEventAck(0))
    assert (machine.result(), machine.events) == (0, {4: "/hit"})
    machine.begin(queries.deregister_event(machine, 4), 0.0)
    give(machine, DeregisterFromEventAck(4))
    assert not machine.events


def test_values_are_observed_as_far_as_the_server_confirms_them() -> None:
    machine, _ = on_stage(DOCUMENT)
    machine.begin(queries.observe(machine, {7: "/a", 8: "/b"}), 0.0)
    give(machine, RegisterForValueAck((8, 3)))
    assert machine.result() == (8,)
    assert machine.values.observed == {8: "/b"}


def test_a_text_that_the_simulator_cannot_parse_is_told() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(queries.set_value(machine, 7, "much", name="/a"), 0.0)
    give(machine, SetValueAck(7, 0))
    with pytest.raises(ValueRejected, match="could not parse 'much' for /a"):
        machine.result()


# --- what is refused before it is sent -----------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["set", "find", "list", "event"])
def test_a_text_that_no_datagram_holds_is_refused_at_once_and_the_session_goes_on(what: str) -> None:
    machine, _ = on_stage(NERD)
    text = "a" * 65_507
    exchanges: dict[str, Callable[[], Exchange[Any]]] = {
        "set": lambda: queries.set_value(machine, 5, text),
        "find": lambda: find_value(machine, text),
        "list": lambda: list_values(machine, text),
        "event": lambda: queries.register_event(machine, text),
    }
    machine.begin(exchanges[what](), 0.0)
    with pytest.raises(LocalProtocolError, match="the largest datagram has 65,507"):
        machine.result()
    assert not machine.outgoing
    machine.begin(queries.set_value(machine, 5, "a" * (65_507 - 7)), 0.0)
    assert [len(data) for data in machine.outgoing] == [65_507]
    give(machine, SetValueAck(5, 1))
    assert machine.result() is True


@pytest.mark.parametrize(
    "begun",
    [
        lambda m: queries.observe(m, {3: "/a"}),
        lambda m: queries.set_value(m, 3, "ä"),
        lambda m: queries.register_event(m, "/ä"),
        lambda m: reset(m, 1),
    ],
    ids=["observe", "set", "event", "reset without an agent"],
)
def test_what_a_server_or_session_cannot_do_is_refused_before_anything_is_sent(
    begun: Callable[[ClientMachine], Exchange[Any]],
) -> None:
    machine = ClientMachine(NERD)
    machine.begin(begun(machine), 0.0)
    with pytest.raises(LocalProtocolError):
        machine.result()
    assert not machine.outgoing


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "3", None])
def test_a_limit_that_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="step limit must be a positive number of seconds"):
        Limits(step=wrong)
    if wrong in (0, -1):
        with pytest.raises(ValueError, match="memory limit must be a positive number of bytes"):
            Limits(memory=wrong)


# --- silence, and answers that nobody can read ---------------------------------------------------------------------

ANSWERS: Final = pytest.mark.parametrize(
    "ask, answer",
    [
        (agents.overview, AgentOverview(0).encode()),
        (lambda m: list_values(m, ".*"), ValueIds(0).encode()),
        (lambda m: queries.register_event(m, "/Event"), RegisterForEventAck(1).encode()),
        (lambda m: queries.get_values(m, [7, 8]), ValueContent(7, "1").encode()),
    ],
    ids=["agents", "values", "event", "contents"],
)


@ANSWERS
@pytest.mark.parametrize("legible", [True, False])
def test_silence_is_told_as_silence_and_answers_that_cannot_be_read_are_shown(
    ask: Callable[[ClientMachine], Exchange[Any]], answer: bytes, *, legible: bool
) -> None:
    machine = ClientMachine(DOCUMENT, limits=Limits(query=1.0))
    machine.begin(ask(machine), 0.0)
    while not machine.finished:
        if sent(machine) and not legible:
            with pytest.raises(RemoteProtocolError):
                machine.receive(answer + b"\0\0", machine.now)
        next_timer(machine)
    assert machine.now == pytest.approx(1.0)
    with pytest.raises(QueryTimeout) as caught:
        machine.result()
    error = caught.value
    if legible:
        assert "not of OSP" not in error.message
        assert error.hint == QueryTimeout.default_hint
        return
    assert "what came is not of OSP 1.1" in error.message
    assert "2 bytes left" in error.message
    assert (answer + b"\0\0").hex(" ") in error.message
    assert error.hint == UNREADABLE
