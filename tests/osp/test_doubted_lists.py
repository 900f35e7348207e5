"""Lists that are complete by the count of a late answer to another question: none is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import IncompleteListing
from ospbridge.interface import ValueEntry
from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.client.listing import find_value, list_values
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import Message, ValueIds, ValueInfo
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.step.restore import list_all
from tests.osp.test_hostile_server import give, on_stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.osp.client.machine import ClientMachine, Exchange

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)


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
            assert machine.deadline is not None
            machine.handle_timer(machine.deadline)


LATE = {
    "its head lost": lambda late, true: [late, *true[1:]],
    "its head overtaken": lambda late, true: [late, true[1], true[0], *true[2:]],
    "its head behind it": lambda late, true: [late, *true[1:], true[0]],
    "the first piece last": lambda late, true: [late, *true[2:], true[1]],
    "the rest lost": lambda late, true: [late, true[1]],
    "all lost": lambda late, true: [late],
}


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


@BOTH
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("count", [0, 1, 2])
def test_so_is_the_first_list_of_all_that_lacks_interface_values_where_answers_come_late(
    profile: Any, late: str, count: int
) -> None:
    """What is known already stands first in the true list, so that nothing known contradicts the false one."""
    machine, _ = on_stage(profile)
    machine.disturbed = True
    machine.values = {SIMULATION_TIME: ValueEntry(1, SIMULATION_TIME, "Double")} if count else {}
    true = whole(*sorted(ALL, key=lambda name: name != SIMULATION_TIME))
    play(machine, list_all(machine), LATE[late](ValueIds(count), true), true)
    assert machine.listed
    assert set(machine.values) == set(ALL)


@BOTH
def test_a_server_of_few_values_is_asked_once_where_nothing_disturbs(profile: Any) -> None:
    machine, _ = on_stage(profile)
    assert play(machine, list_all(machine), whole(SIMULATION_TIME)) == (1, 0.0)
    assert machine.listed
    assert play(machine, find_value(machine, "/missing"), whole()) == (1, 0.0)
    assert machine.result() is None
    assert not machine.disturbed


@BOTH
def test_where_answers_come_late_it_is_believed_the_second_time(profile: Any) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    asked, seconds = play(machine, list_all(machine), whole(SIMULATION_TIME), whole(SIMULATION_TIME))
    assert (asked, seconds) == (2, 0.0)
    assert play(machine, list_all(machine), whole(SIMULATION_TIME)) == (1, 0.0), "it is known by then"
    assert not machine.notices


@BOTH
def test_a_value_that_is_there_no_more_is_forgotten_the_second_time(profile: Any) -> None:
    machine, _ = on_stage(profile)
    machine.values = {"/gone": ValueEntry(7, "/gone", "Double"), SIMULATION_TIME: CLOCK}
    asked, seconds = play(machine, list_values(machine, ".*"), whole(*ALL), whole(*ALL))
    assert (asked, set(machine.values)) == (2, set(ALL))
    assert seconds < 1.0
    assert not machine.disturbed


@BOTH
@pytest.mark.parametrize("often", [1, 2])
def test_a_late_word_of_nothing_does_not_hide_a_value(profile: Any, often: int) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    nothing = [ValueIds(0)] * often
    true = whole("/here")
    play(machine, find_value(machine, "/here"), [*nothing, *true], true)
    assert machine.result() == ValueEntry(1, "/here", "Double")


@BOTH
def test_nor_do_two_to_which_it_comes_a_little_later(profile: Any) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    true = whole("/here")
    play(machine, find_value(machine, "/here"), [ValueIds(0)], [ValueIds(0), *true], true)
    assert machine.result() == ValueEntry(1, "/here", "Double")


@BOTH
def test_a_list_of_more_than_was_asked_for_is_late_from_a_wider_question(profile: Any) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    true = whole("/Sim/agent/in", "/Sim/agent/out")
    play(machine, list_values(machine, "/Sim/.*"), whole(*ALL), true)
    assert [entry.name for entry in machine.result()] == ["/Sim/agent/in", "/Sim/agent/out"]


def test_a_server_that_finds_names_in_its_own_way_is_believed_the_second_time() -> None:
    machine, _ = on_stage(NERD)
    found = whole(*ALL)
    assert play(machine, list_values(machine, "agent"), found) == (1, 0.0)
    machine.disturbed = True
    asked, seconds = play(machine, list_values(machine, "agent"), found, found)
    assert asked == 2
    assert seconds < 1.0


@BOTH
def test_asking_again_for_a_doubted_list_is_no_sign_of_an_acknowledgement_that_is_awaited(
    profile: Any,
) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    machine.values = {"/gone": ValueEntry(7, "/gone", "Double")}
    play(machine, list_all(machine), whole(SIMULATION_TIME), whole(SIMULATION_TIME))
    assert not machine.awaits_spare_ack


@BOTH
def test_a_server_that_answers_otherwise_each_time_is_given_up(profile: Any) -> None:
    machine, _ = on_stage(profile)
    machine.disturbed = True
    machine.begin(find_value(machine, "/here"), 0.0)
    number = 0
    while not machine.finished:
        if Code.GET_VALUE_IDS in [data[0] for data in machine.outgoing]:
            number += 1
            give(machine, ValueIds(1), ValueInfo(0, number, "Double", f"/here/{number}"))
        machine.outgoing.clear()
        if not machine.finished:
            assert machine.deadline is not None
            machine.handle_timer(machine.deadline)
    with pytest.raises(IncompleteListing, match="/here"):
        machine.result()
    assert machine.now <= machine.limits.listing
