"""Lists of agents and variables: complete, true to the question, and harmless where they are given up in the midst."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import RemoteProtocolError
from ospbridge.interface import ValueEntry
from ospbridge.osp.client.clock import SIMULATION_TIME, TIME_STEP_SIZE
from ospbridge.osp.client.listing import _Part, list_values, literal
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import Message, ValueIds, ValueInfo
from ospbridge.osp.patterns import compiled
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Pair
from tests.osp.stage import BOTH, give, next_timer, on_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.osp.client.machine import ClientMachine, Exchange
    from tests.osp.pair import Client
"""Datagrams of one burst that find room in the receive buffer."""


@pytest.mark.parametrize("dialect", ["-G", "-E", None], ids=["basic", "extended", "python"])
@pytest.mark.parametrize("name", ["/Base (1)/x+y", "/a.b|c?d*e", "/{2}[3]$^", "/back\\slash"])
def test_a_name_is_found_in_every_dialect_of_regular_expressions(name: str, dialect: str | None) -> None:
    for text, found in ((name, True), (name.replace("/", "/x"), False)):
        if dialect is None:
            assert bool(compiled(literal(name)).search(text)) is found
        else:
            grep = ["grep", dialect, "-q", "-e", literal(name)]
            assert (subprocess.run(grep, input=text, text=True, check=False).returncode == 0) is found


@BOTH
def test_a_server_that_numbers_each_list_anew_is_refused_before_one_value_is_taken_for_another(
    profile: Profile,
) -> None:
    pair = Pair(SyntheticWorld(1, 1), profile)
    client = pair.client(profile).connect()
    client.do(client.conversation.get(SIMULATION_TIME))
    (handler,) = pair.server._handlers.values()
    handler.values.clear()
    handler.value_ids.clear()
    with pytest.raises(
        RemoteProtocolError, match=f"the id of value '{SIMULATION_TIME}' to '/Simulation/TimeStepSize"
    ) as caught:
        client.do(client.conversation.get(TIME_STEP_SIZE))
    assert "throughout the session" in caught.value.hint


def whole(*names: str) -> list[Message]:
    return [ValueIds(len(names)), *(ValueInfo(at, at + 1, "Double", name) for at, name in enumerate(names))]


CLOCK = ValueEntry(2, SIMULATION_TIME, "Double")
ALL = ["/Other", SIMULATION_TIME, "/Sim/agent/in", "/Sim/agent/out"]
"""What the repository has, with the interface of the agent that is controlled."""


def play(machine: ClientMachine, exchange: Exchange[Any], *answers: Sequence[Message]) -> tuple[int, float]:
    """A burst each time it asks, and the last one for good; how often it asked, and seconds until the end."""
    left, asked, began = list(answers), 0, machine.now
    machine.begin(exchange, machine.now)
    while True:
        often = [data[0] for data in machine.outgoing].count(Code.GET_VALUE_IDS)
        machine.outgoing.clear()
        asked += often
        if often:
            give(machine, *(left.pop(0) if len(left) > 1 else left[0]))
        if machine.finished:
            assert len(left) == 1
            return asked, machine.now - began
        if not machine.outgoing:
            next_timer(machine)


LATE = {
    "its head lost": lambda late, true: [late, *true[1:]],
    "its head overtaken": lambda late, true: [late, true[1], true[0], *true[2:]],
    "its head behind it": lambda late, true: [late, *true[1:], true[0]],
    "the first piece last": lambda late, true: [late, *true[2:], true[1]],
    "the rest lost": lambda late, true: [late, true[1]],
    "all lost": lambda late, true: [late],
}


@pytest.mark.sampled(24)
@BOTH
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("count", [0, 1, 2, 3])
@pytest.mark.parametrize("disturbed", [True, False], ids=["disturbed", "undisturbed"])
def test_a_list_of_fewer_values_than_are_known_is_asked_for_again(
    profile: Any, late: str, count: int, disturbed: bool
) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = disturbed
    machine.values = {entry.name: entry for entry in (CLOCK, ValueEntry(4, ALL[-1], "Double"))}
    true = whole(*ALL)
    play(machine, list_values(machine, ".*"), LATE[late](ValueIds(count), true), true)
    assert [entry.name for entry in machine.result()] == ALL
    assert machine.disturbed, "it was seen that answers come late"
    assert set(machine.values) == set(ALL)


NAMES = ["agent", "other", "third"]
GIVEN = np.array([0.25], np.float32)
LISTS: dict[str, Callable[[Any], Any]] = {
    "overview": lambda talk: talk.overview(),
    "interface": lambda talk: talk.describe("other"),
    "values": lambda talk: talk.values(),
}


def in_mid_episode(profile: Profile) -> tuple[Pair, Client, Any]:
    """A client in mid-episode."""
    pair = Pair(SyntheticWorld(1, 2, names=NAMES), profile)
    client = pair.client(profile, limits=Limits(query=2.0)).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(7))
    for _ in range(2):
        client.do(talk.step({"agent": GIVEN}))
    return pair, client, talk


def interrupt(pair: Pair, client: Client, question: Any, *, datagrams: int) -> None:
    """Begin it, and give it up when so many datagrams were sent."""
    until = len(pair.sent) + datagrams
    client.begin(question)
    while len(pair.sent) < until:
        pair.advance(until=pair.now + 1.0)
    assert not client.finished, "it was not over yet"
    client.conversation.machine.interrupt(KeyboardInterrupt())


@BOTH
@pytest.mark.parametrize("which", LISTS)
@pytest.mark.parametrize("datagrams", [1, 2, 3])
def test_a_step_behind_an_interrupted_list_runs_at_once(profile: Profile, which: str, datagrams: int) -> None:
    pair, client, talk = in_mid_episode(profile)
    interrupt(pair, client, LISTS[which](talk), datagrams=datagrams)
    began = pair.now
    for step in range(3, 6):
        outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
        np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
    assert pair.now - began < profile.patience
    assert client.do(talk.audit()) == ""


@BOTH
def test_a_list_is_not_answered_with_that_of_an_interrupted_question(profile: Profile) -> None:
    pair, client, talk = in_mid_episode(profile)
    interrupt(pair, client, talk.values(), datagrams=1)
    wanted = "/Simulation/.*"
    found = client.do(talk.values(wanted))
    pair.settle()
    assert found == client.do(talk.values(wanted))
    assert all(entry.name.startswith("/Simulation/") for entry in found)


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
