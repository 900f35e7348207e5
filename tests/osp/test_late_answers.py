"""Answers that are late from another question, and the parts that a listing falls into."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.listing import _Part
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
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.stage import BOTH, give, next_timer, on_stage, sent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

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


def test_an_agent_that_was_not_ours_is_given_back_as_such() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(roster.deregister(machine, 1), 0.0)
    give(machine, DeregisterFromAgentAck(1, 2))
    assert machine.result() is False
    assert not machine.controlled


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


def described(agent_id: int, *names: str) -> list[Message]:
    """The info of an agent that has only inputs."""
    pieces = [AgentInfoNext(at, -1.0, 1.0, name) for at, name in enumerate(names)]
    return [AgentInfo(agent_id, len(names), 0, 0, f"agent{agent_id}"), *pieces]


def test_late_pieces_of_another_agents_info_are_not_believed_where_answers_come_late() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(roster.agent_info(machine, 1), 0.0)
    give(machine, *described(1, "/a", "/b"))
    machine.anomaly("a datagram came late")
    machine.begin(roster.agent_info(machine, 2), 0.0)
    machine.outgoing.clear()
    head, first, second = described(2, "/c", "/d")
    late = described(1, "/a", "/b")
    give(machine, head, first, late[2])
    assert not machine.finished
    give(machine, second, head, first, second)
    give(machine, head, first, second)
    assert [value.name for value in machine.result().inputs] == ["/c", "/d"]


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


def test_a_late_answer_to_what_was_set_before_does_not_say_that_this_was_set() -> None:
    machine, _ = on_stage(NERD)
    machine.anomaly("a datagram came late")
    for content in ("1", "2"):
        machine.begin(asking.set_value(machine, 7, content), 0.0)
        first = bytes(machine.outgoing[-1])
        machine.outgoing.clear()
        give(machine, SetValueAck(7, 1))
        if content == "1":
            assert machine.result() is True
            continue
        assert not machine.finished, "the request may be lost"
        assert [bytes(data) for data in machine.outgoing] == [first]
        give(machine, SetValueAck(7, 1))
        assert machine.result() is True


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


def test_garbage_that_comes_to_an_idle_session_is_refused_and_nothing_happens() -> None:
    machine, _ = on_stage(NERD)
    with pytest.raises(RemoteProtocolError):
        machine.receive(b"\xff", 1.0)
    assert (machine.outgoing, machine.lost, machine.disturbed) == ([], None, False)


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


# --- resets --------------------------------------------------------------------------------------------------------


# --- parts of a listing --------------------------------------------------------------------------------------------

letters = st.text("ab/.", min_size=1, max_size=4)


@given(
    names=st.sets(letters, min_size=1, max_size=12),
    others=st.sets(letters, max_size=12),
    prefix=st.text("ab/", max_size=2),
    only=st.frozensets(st.sampled_from("ab/.")),
    never=st.frozensets(st.sampled_from("ab/.")),
)
def test_the_parts_of_a_part_hold_every_name_of_it_exactly_once(
    names: set[str], others: set[str], prefix: str, only: frozenset[str], never: frozenset[str]
) -> None:
    part = _Part(prefix, only=only, never=frozenset() if only else never)
    known = sorted(name for name in names if part.holds(name))
    parts, alone = part.split(known)
    if not parts:
        assert all(len(name) <= len(prefix) for name in known)
        return
    assert len(set(alone)) == len(alone)
    for name in names | others:
        holders = [smaller for smaller in parts if smaller.holds(name)]
        holders += [_Part(one) for one in alone if one == name]
        assert len(holders) == part.holds(name), (name, parts, alone)


@given(
    name=letters,
    prefix=st.text("ab/.", max_size=2),
    only=st.frozensets(st.sampled_from("ab/.-^]")),
    never=st.frozensets(st.sampled_from("ab/.-^]")),
)
def test_the_expression_of_a_part_finds_what_the_part_holds(
    name: str, prefix: str, only: frozenset[str], never: frozenset[str]
) -> None:
    part = _Part(prefix, only=only, never=frozenset() if only else never)
    assert bool(re.search(part.expression, name)) == part.holds(name)


LIMITS = Limits(query=3, listing=6, step=6, reset=6)
OURS = np.array([0.25], np.float32)
VOTES = {"step": Code.NEXT_SIMULATION_STEP, "reset": Code.RESET_SIMULATION}


class Two:
    """Ours has one of two agents, and knows of nobody else; then another client registers for the other one.

    A first acknowledgement of our votes is lost, and a late overview of before that comes before each one's first
    answer. The other client does not vote.
    """

    def __init__(self, profile: Profile) -> None:
        self.marked = profile.end_marker
        self.pair = Pair(SyntheticWorld(1, 2, names=["mine", "theirs"]), profile)
        self.ours = self._joined(profile, "mine")
        talk: Any = self.ours.conversation
        self.ours.do(talk.reset(7))
        self.ours.do(talk.step({"mine": OURS}))
        self._joined(profile, "theirs")
        assert not talk.machine.foreign
        self.votes = 0
        self.late = True
        self.pair.fault = self.fault

    def _joined(self, profile: Profile, name: str) -> Client:
        client = self.pair.client(profile, limits=LIMITS).connect()
        client.do(client.conversation.register([name]))
        return client

    def fault(self, datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        self.votes += datagram.to_server and code in VOTES.values()
        if not datagram.to_server:
            lost = (Code.NEXT_SIMULATION_STEP_ACK, Code.RESET_SIMULATION_ACK)
            return () if code in lost else (0.0,)
        if code == Code.GET_AGENT_OVERVIEW and self.late:
            self.late = False
            old = (AgentOverviewNext(0, 1, "Agent", 0, "mine"), AgentOverviewNext(1, 2, "Agent", 1, "theirs"))
            for message in (AgentOverview(2), *old):
                self.pair.answer(self.ours, message.encode(end=self.marked))
        return (0.0,)

    def ask(self, exchange: Exchange[Any]) -> None:
        with pytest.raises(OspBridgeError):
            self.ours.do(exchange)


@BOTH
@pytest.mark.parametrize("what", VOTES)
def test_a_vote_is_not_given_again_for_what_a_late_overview_says(profile: Profile, what: str) -> None:
    two = Two(profile)
    ran = len(two.pair.ledger)
    talk = two.ours.conversation
    two.ask(talk.step({"mine": OURS}) if what == "step" else talk.reset(8))
    assert not two.late
    assert two.votes == 1
    assert len(two.pair.ledger) == ran, "the world waits for the other client"
