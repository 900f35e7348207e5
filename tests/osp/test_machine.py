"""The client machine beside its exchanges: one at a time, lost sessions, floods; and what it tells unasked."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, OspBridgeError, RemoteProtocolError, SessionLost
from ospbridge.osp import agents, queries
from ospbridge.osp.client import ClientMachine, Episode, Exchange
from ospbridge.osp.disconnect import leave
from ospbridge.osp.fast_path import StepRequest
from ospbridge.osp.lists import find_value
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    EndAck,
    Message,
    NextSimulationStepAck,
    StepCompleted,
    ValueContent,
)
from ospbridge.osp.notices import KEPT, Notices, Pace, told_by
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.reset import empty_barrier, reset
from ospbridge.osp.step import step
from tests.osp.stage import BOTH, SHORT, Stage, ack, brought, give, on_stage, path_of, sent, silence


def test_a_second_exchange_is_refused_while_one_is_pending_and_never_begins() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(queries.get_value(machine, 5), 0.0)
    sent(machine)
    with pytest.raises(LocalProtocolError, match="pending on this session already"):
        machine.begin(queries.get_value(machine, 6), 0.0)
    with pytest.raises(LocalProtocolError, match="still pending"):
        machine.result()
    assert not machine.outgoing
    give(machine, ValueContent(5, "1"))
    assert machine.result() == "1"


def test_a_lost_session_begins_nothing_and_says_why() -> None:
    machine, _ = on_stage(NERD)
    give(machine, EndAck())
    with pytest.raises(SessionLost, match="ended this session"):
        machine.begin(queries.get_value(machine, 5), 0.0)
    assert not machine.outgoing
    assert machine.finished


def test_an_interrupted_exchange_ends_with_its_error_and_the_next_one_begins() -> None:
    machine, _ = on_stage(NERD)
    machine.begin(queries.get_value(machine, 5), 0.0)
    machine.interrupt(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        machine.result()
    assert machine.result() is None
    machine.interrupt(KeyboardInterrupt())
    machine.begin(queries.get_value(machine, 5), 0.0)
    give(machine, ValueContent(5, "1"))
    assert machine.result() == "1"


def test_a_closed_port_ends_the_session_but_behind_a_goodbye_it_is_the_answer() -> None:
    stage = Stage().begin_step(0.5)
    stage.machine.handle_refused(1.0)
    with pytest.raises(SessionLost, match="connection refused"):
        stage.machine.result()
    machine, _ = on_stage(NERD)
    machine.begin(leave(machine, (1,)), 0.0)
    machine.handle_refused(0.1)
    assert machine.result() is True
    assert not machine.controlled


def test_a_session_takes_over_what_was_learned_and_asks_about_old_requests_where_there_may_be_some() -> None:
    before = ClientMachine(NERD)
    before.learned.lists_one_by_one = True
    before.pace.late(1, 0.4)
    for episode, unknown in (
        (Episode(), False),
        (Episode(request_outstanding=True), True),
        (Episode(reset_outstanding=True), True),
        (Episode(barrier_unknown=True), True),
        (Episode(doubt="a dog ate it"), True),
    ):
        before.episode = episode
        after = ClientMachine(NERD)
        after.succeed(before)
        assert after.episode.barrier_unknown is unknown
        assert after.learned is before.learned
        assert after.pace.longest(1) == 0.4


# --- floods --------------------------------------------------------------------------------------------------------


def flood(machine: ClientMachine, exchange: Exchange[Any], *datagrams: bytes) -> float:
    """Something is always there to read, 100 datagrams a second: seconds until the exchange ended with an error."""
    machine.begin(exchange, 0.0)
    for number, datagram in enumerate(itertools.cycle(datagrams), start=1):
        with suppress(RemoteProtocolError):
            machine.receive(datagram, number / 100)
        machine.outgoing.clear()
        if machine.finished:
            with pytest.raises(OspBridgeError):
                machine.result()
            return machine.now
        assert machine.now < 1000, "unbounded"
    raise AssertionError("endless")


FLOODS = {
    "garbage": (b"\xff\xff",),
    "nothing": (b"",),
    "values of others": (ValueContent(77, "x").encode(),),
    "doubled acknowledgements": (NextSimulationStepAck(1).encode(),),
    "acknowledgements of others": (NextSimulationStepAck(8).encode(),),
    "pieces without a head": (AgentOverviewNext(0, 1, "Agent", 1, "a").encode(),),
    "heads that change": (AgentOverview(3).encode(), AgentOverview(4).encode()),
    "pieces that conflict": (
        AgentOverview(3).encode(),
        AgentOverviewNext(0, 1, "Agent", 1, "a").encode(),
        AgentOverviewNext(0, 1, "Agent", 1, "b").encode(),
    ),
}
EXCHANGES: dict[str, Callable[[ClientMachine, StepRequest], Exchange[Any]]] = {
    "overview": lambda m, _: agents.overview(m),
    "info": lambda m, _: agents.agent_info(m, 1),
    "value": lambda m, _: queries.get_value(m, 5),
    "find": lambda m, _: find_value(m, "/x"),
    "reset": lambda m, _: reset(m, 1),
    "old requests": lambda m, _: empty_barrier(m),
    "step": lambda m, request: step(m, path_of(m, request)),
}


@pytest.mark.sampled(20)
@BOTH
@pytest.mark.parametrize("what", FLOODS)
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_no_exchange_outlasts_its_limit_under_a_flood(profile: Profile, exchange: str, what: str) -> None:
    machine, request = on_stage(profile)
    took = flood(machine, EXCHANGES[exchange](machine, request), *FLOODS[what])
    assert took < 2 * SHORT.listing + SHORT.reset + 1.0


LONG = "/" + 4000 * "x"


def interfaces() -> Iterator[Message]:
    yield AgentInfo(1, 4, 3, 2, "agent")
    for number in itertools.count():
        yield AgentInfoNext(number % 8, -1.0, 1.0, f"{LONG}{number}")


def completions() -> Iterator[Message]:
    for number in itertools.count():
        yield StepCompleted(1, np.full(1000, number, np.float32), np.empty(0, np.float32))


@pytest.mark.parametrize("exchange, replies", [("info", interfaces), ("step", completions)])
def test_what_a_flood_brings_is_not_kept(exchange: str, replies: Callable[[], Iterator[Message]]) -> None:
    machine, request = on_stage(DOCUMENT)
    machine.begin(EXCHANGES[exchange](machine, request), 0.0)
    tracemalloc.start()
    try:
        for reply in itertools.islice(replies(), 5_000):
            give(machine, reply)
            machine.outgoing.clear()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 8 * 1024 * 1024


def test_values_pushed_for_ever_do_not_prolong_a_step() -> None:
    machine, request = on_stage(DOCUMENT)
    machine.values.observed[9] = "/x"
    pushed = [ack().encode(), brought(0.5, observed=10**9).encode(), *[ValueContent(9, "1").encode()] * 1000]
    assert flood(machine, EXCHANGES["step"](machine, request), *pushed) < SHORT.step + 1.5


# --- notices -------------------------------------------------------------------------------------------------------


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
        notices.reset("the world was reset once more")
        told = told_by(notices)
        assert told.remarks == (["it refused the seed 0"] if not number else [])
        assert told.reset == "the world was reset"
        notices.clear()


def test_a_completion_that_cannot_be_read_is_told_once() -> None:
    """Where its step is restored each time, nothing else tells why it takes so long and brings no events."""
    machine = ClientMachine(DOCUMENT)
    for agent_id in (1, 2):
        with pytest.raises(RemoteProtocolError):
            machine.receive(brought(0.0, agent_id=agent_id).encode() + b"\0\0", 0.0)
    (told,) = told_by(machine.notices).remarks
    assert "2 bytes left" in told
    assert machine.notices.undecodable_count == 2


def test_a_step_whose_completion_was_cut_waits_for_no_more_than_its_limit() -> None:
    stage = Stage(replace(NERD, datagram_limit=24), outputs=3, limits=SHORT)
    stage.begin_step(0.5).give(ack(), brought(0.5, 0.5, 0.5).encode()[:24])
    assert silence(stage.machine) <= SHORT.query + SHORT.listing
    with pytest.raises(OspBridgeError):
        stage.machine.result()


# --- steps that stall ----------------------------------------------------------------------------------------------

STALL = 0.0502
"""Seconds."""


def told(late: Mapping[int, float], *, curable: bool = True) -> list[str]:
    """What is said where these steps waited so long, by their number."""
    notices = Notices()
    pace = Pace(notices, "127.0.0.1:45454")
    pace.curable = curable
    for number, waited in late.items():
        pace.late(number, waited)
    return [notice.text for notice in notices]


def test_six_stalls_among_a_thousand_steps_are_told_once_with_their_cure() -> None:
    late = dict.fromkeys(range(100, 20_000, 100), STALL)
    (text,) = told(late)
    assert "completed 6 of its latest 600 steps more than 45 ms late" in text
    assert "`ospbridge tune 127.0.0.1:45454`" in text
    late = dict.fromkeys(range(1500, 20_000, 150), STALL)
    (text,) = told(late)
    assert "completed 6 of its latest 1,000 steps" in text
    assert not told(late, curable=False)


@pytest.mark.parametrize(
    "late",
    [
        dict.fromkeys(range(200, 20_000, 200), STALL),
        dict.fromkeys(range(90, 100), STALL),
        dict.fromkeys(range(100, 20_000, 100), 0.044),
    ],
    ids=["five in each thousand", "in the first hundred steps", "sooner than a stall ends"],
)
def test_what_may_happen_by_itself_is_not_told(late: dict[int, float]) -> None:
    assert not told(late)


def test_a_simulator_that_takes_its_time_for_half_of_its_steps_is_not_told_of() -> None:
    thinking = {number: STALL if number % 10 == 0 else 0.012 for number in range(0, 5000, 2)}
    assert not told(thinking)
    del thinking[4000]
    assert told(thinking)


def test_a_step_that_waits_several_times_counts_once() -> None:
    notices = Notices()
    pace = Pace(notices, "127.0.0.1:45454")
    pace.curable = True
    for number in (1000, 1001, 1002, 1003, 1004):
        for waited in (0.02, STALL, 0.03, STALL):
            pace.late(number, waited)
    assert not notices
    pace.late(1005, STALL)
    assert len(notices) == 1
