"""The client machine where little happens: idle, refused, out of turn; and questions that nobody answers well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import (
    IncompleteListing,
    LocalProtocolError,
    OutputsIncomplete,
    RemoteProtocolError,
    SessionLost,
    UsageError,
)
from ospbridge.interface import ValueEntry
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.listing import find_value, list_values
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.notices import KEPT, Notices, told_by
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentOverview,
    EndAck,
    GetValueIds,
    StepCompleted,
    ValueContent,
    ValueIds,
    ValueInfo,
    decode_request,
)
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.step import barrier
from ospbridge.osp.step.restore import restore
from ospbridge.osp.timing import Limits
from tests.osp.stage import SHORT, give, next_timer, on_stage, sent, silence

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.osp.client.machine import Exchange


# --- one exchange at a time ----------------------------------------------------------------------------------------


def test_a_second_exchange_is_refused_while_one_is_under_way_and_never_begins() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(asking.get_value(machine, 5), 0.0)
    sent(machine)
    with pytest.raises(LocalProtocolError, match="under way on this session already"):
        machine.begin(asking.get_value(machine, 6), 0.0)
    with pytest.raises(LocalProtocolError, match="still under way"):
        machine.result()
    assert not machine.outgoing
    give(machine, ValueContent(5, "1"))
    assert machine.result() == "1"


def test_a_lost_session_begins_nothing_and_says_why() -> None:
    machine, _ = on_stage(NERD)
    give(machine, EndAck())
    with pytest.raises(SessionLost, match="ended this session"):
        machine.begin(asking.get_value(machine, 5), 0.0)
    assert not machine.outgoing
    assert machine.finished


@pytest.mark.parametrize("what", ["set", "find", "list", "event"])
def test_a_text_that_no_datagram_holds_is_refused_at_once_and_the_session_goes_on(what: str) -> None:
    machine, _ = on_stage(NERD)
    text = "a" * 65_507
    exchanges: dict[str, Callable[[], Exchange[Any]]] = {
        "set": lambda: asking.set_value(machine, 5, text),
        "find": lambda: find_value(machine, text),
        "list": lambda: list_values(machine, text),
        "event": lambda: asking.register_event(machine, text),
    }
    machine.begin(exchanges[what](), 0.0)
    assert machine.finished
    with pytest.raises(LocalProtocolError, match="the largest datagram has 65,507"):
        machine.result()
    assert not machine.outgoing
    assert not machine.disturbed
    machine.begin(asking.get_value(machine, 5), 0.0)
    assert sent(machine) == [Code.GET_VALUE]
    give(machine, ValueContent(5, "1"))
    assert machine.result() == "1"


@pytest.mark.parametrize(
    "begun",
    [
        lambda m: asking.observe(m, {3: "/a"}),
        lambda m: asking.unobserve(m, (3,)),
        lambda m: barrier.reset(m, 1),
    ],
    ids=["observe", "unobserve", "reset without an agent"],
)
def test_what_a_server_or_session_cannot_do_is_refused_before_anything_is_sent(
    begun: Callable[[ClientMachine], Exchange[Any]],
) -> None:
    machine = ClientMachine(NERD)
    machine.begin(begun(machine), 0.0)
    with pytest.raises(LocalProtocolError):
        machine.result()
    assert not machine.outgoing


# --- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "3", None])
def test_a_limit_that_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="step limit must be a positive number of seconds"):
        Limits(step=wrong)


# --- questions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 2**31 - 1])
def test_a_count_that_no_list_can_have_is_an_error_of_the_server(count: int) -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(roster.overview(machine), 0.0)
    give(machine, AgentOverview(count))
    with pytest.raises(RemoteProtocolError, match=f"a count of {count} pieces"):
        machine.result()


# --- the repository ------------------------------------------------------------------------------------------------


def listed(machine: ClientMachine, exchange: Exchange[Any], number: int, *entries: tuple[int, str]) -> None:
    """Answer an exchange's first question with a burst of ``number`` variables, of which only these arrive."""
    machine.begin(exchange, 0.0)
    infos = [ValueInfo(index, index + 1, "Double", name) for index, name in entries]
    give(machine, ValueIds(number), *infos)


def test_an_expression_that_python_does_not_know_cannot_be_listed_in_parts() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    listed(machine, list_values(machine, "*["), 400, (0, "/a"))
    silence(machine)
    with pytest.raises(UsageError, match=r"cannot list '\*\[' in parts"):
        machine.result()


def test_a_repository_of_which_nothing_arrives_is_told_as_incomplete() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    listed(machine, list_values(machine, ".*"), 400, (0, "/a"))
    while not machine.finished:
        next_timer(machine)
        if Code.GET_VALUE_IDS in sent(machine) and not machine.finished:
            give(machine, ValueIds(400))
    with pytest.raises(
        IncompleteListing, match=r"nothing of the values|did not arrive completely within 4 s"
    ):
        machine.result()


def test_a_listing_in_parts_ends_with_the_limit_where_the_numbers_never_agree() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    a, b = ValueInfo(0, 1, "Double", "/a"), ValueInfo(1, 2, "Double", "/b")
    machine.begin(list_values(machine, "/.*"), 0.0)
    while not machine.finished:
        for data in machine.outgoing:
            request = decode_request(bytes(data))
            if isinstance(request, GetValueIds):
                whole = request.expression in ("/.*", "^.*$")
                machine.now += 0.01
                give(machine, *([ValueIds(400), a, b] if whole else [ValueIds(0)]))
        machine.outgoing.clear()
        if machine.deadline is not None:
            machine.handle_timer(machine.deadline)
    with pytest.raises(IncompleteListing, match="did not arrive completely within 4 s, 2 values did"):
        machine.result()
    assert machine.now == pytest.approx(SHORT.listing, abs=2.0)


def test_what_is_read_back_must_be_a_number() -> None:
    machine, vote = on_stage(DOCUMENT)
    machine.values["/agent/out"] = ValueEntry(9, "/agent/out", "Double")
    machine.begin(restore(machine, vote.agent, None), 0.0)
    give(machine, ValueContent(9, "much"))
    with pytest.raises(OutputsIncomplete, match="/out of agent 'agent' reads 'much' in the repository"):
        machine.result()


@pytest.mark.parametrize("text", ["-0.25", "-0,25"])
def test_what_is_read_back_is_the_number(text: str) -> None:
    machine, vote = on_stage(DOCUMENT)
    machine.values["/agent/out"] = ValueEntry(9, "/agent/out", "Double")
    machine.begin(restore(machine, vote.agent, None), 0.0)
    give(machine, ValueContent(9, text))
    np.testing.assert_array_equal(machine.result().outputs, [-0.25])
    assert not machine.result().outputs.flags.writeable


def test_a_reset_by_others_outlasts_a_flood_of_anomalies() -> None:
    notices = Notices()
    notices.reset("the world was reset")
    for number in range(2 * KEPT):
        notices.anomaly(f"datagram {number} came late")
    assert len(notices) == KEPT
    assert told_by(notices).reset == "the world was reset"


def test_a_remark_is_made_once_though_it_was_taken_and_a_reset_again() -> None:
    notices = Notices()
    for number in range(3):
        notices.remark(f"it refused the seed {number}", about="seed")
        notices.reset("the world was reset")
        told = told_by(notices)
        assert told.remarks == (["it refused the seed 0"] if not number else [])
        assert told.reset
        notices.clear()


def test_a_completion_that_cannot_be_read_is_told_once() -> None:
    """Where its step is restored each time, nothing else tells why it takes so long and brings no events."""
    machine = ClientMachine(DOCUMENT)
    for agent_id in (1, 2):
        completion = StepCompleted(agent_id, np.zeros(1, np.float32), np.empty(0, np.float32)).encode()
        with pytest.raises(RemoteProtocolError):
            machine.receive(completion + b"\0\0", 0.0)
    (told,) = told_by(machine.notices).remarks
    assert "2 bytes left" in told
