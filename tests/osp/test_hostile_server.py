"""Servers that answer nonsense, floods, late or twice: every exchange ends, and nothing false is believed."""

from __future__ import annotations

import itertools
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import (
    BarrierStuck,
    OspBridgeError,
    OutputsIncomplete,
    RemoteProtocolError,
)
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.clock import SIMULATION_TIME
from ospbridge.osp.client.listing import find_value
from ospbridge.osp.client.machine import OVERDUE_AT_MOST, ClientMachine
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    Message,
    NextSimulationStepAck,
    StepCompleted,
    ValueContent,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.osp.stage import BOTH, SHORT, brought, give, joined, next_timer, on_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ospbridge.osp.client.machine import Exchange


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


# --- floods -------------------------------------------------------------------------------------------------

FLOODS = {
    "garbage": (b"\xff\xff",),
    "nothing": (b"",),
    "values of others": (ValueContent(77, "x").encode(),),
    "doubled acknowledgements": (NextSimulationStepAck(1).encode(),),
    "pieces without a head": (AgentOverviewNext(0, 1, "Agent", 1, "a").encode(),),
    "heads that change": (AgentOverview(3).encode(), AgentOverview(4).encode()),
    "pieces that conflict": (
        AgentOverview(3).encode(),
        AgentOverviewNext(0, 1, "Agent", 1, "a").encode(),
        AgentOverviewNext(0, 1, "Agent", 1, "b").encode(),
    ),
}
EXCHANGES: dict[str, Callable[[ClientMachine, Vote], Exchange[Any]]] = {
    "overview": lambda m, _: roster.overview(m),
    "info": lambda m, _: roster.agent_info(m, 1),
    "value": lambda m, _: asking.get_value(m, 5),
    "find": lambda m, _: find_value(m, "/x"),
    "reset": lambda m, _: barrier.reset(m, 1),
    "step": lambda m, vote: barrier.step(m, [vote]),
}


@pytest.mark.sampled(20)
@BOTH
@pytest.mark.parametrize("what", FLOODS)
@pytest.mark.parametrize("exchange", EXCHANGES)
def test_no_exchange_outlasts_its_limit_under_a_flood(profile: Profile, exchange: str, what: str) -> None:
    machine, vote = on_stage(profile)
    grace = OVERDUE_AT_MOST / 100
    took = flood(machine, EXCHANGES[exchange](machine, vote), *FLOODS[what])
    assert took < 2 * SHORT.listing + SHORT.reset + 12 * grace


LONG = "/" + 4000 * "x"


def interfaces() -> Iterator[Message]:
    yield AgentInfo(1, 4, 3, 2, "agent")
    for number in itertools.count():
        yield AgentInfoNext(number % 8, -1.0, 1.0, f"{LONG}{number}")


def completions() -> Iterator[Message]:
    for number in itertools.count():
        yield StepCompleted(1, np.full(1000, number, np.float32), np.empty(0, np.float32))


@pytest.mark.parametrize(
    "exchange, replies", [("info", interfaces), ("step", completions)], ids=["pieces", "completions"]
)
def test_what_a_flood_brings_is_not_kept(exchange: str, replies: Callable[[], Iterator[Message]]) -> None:
    machine, vote = on_stage(DOCUMENT)
    machine.begin(EXCHANGES[exchange](machine, vote), 0.0)
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
    machine, vote = on_stage(DOCUMENT)
    machine.observed[9] = "/x"
    machine.begin(barrier.step(machine, [vote]), 0.0)
    give(machine, NextSimulationStepAck(1), brought(0.5, observed=10**9))
    for number in itertools.count(1):
        with suppress(RemoteProtocolError):
            machine.receive(ValueContent(9, "1").encode(), number / 10)
        if machine.now > SHORT.step + SHORT.query + OVERDUE_AT_MOST:
            break
    assert machine.finished


def test_a_completion_is_acknowledged_once_and_behind_all_values_that_are_pushed() -> None:
    machine, vote = on_stage(DOCUMENT)
    machine.observed = {8: "/x", 9: "/y"}
    machine.begin(barrier.step(machine, [vote]), 0.0)
    give(machine, NextSimulationStepAck(1), brought(0.5, observed=2), ValueContent(8, "1"))
    assert bytes(vote.done) not in machine.outgoing
    give(machine, ValueContent(9, "2"))
    assert machine.outgoing.count(bytes(vote.done)) == 1
    assert machine.result().values == {8: "1", 9: "2"}


def test_the_end_of_pushed_values_is_acknowledged_even_where_one_was_lost() -> None:
    lost = [0]

    def fault(datagram: Datagram) -> Iterable[float]:
        if not datagram.to_server and datagram.data[0] == Code.VALUE and pushed and not lost[0]:
            lost[0] = 1
            return ()
        return (0.0,)

    pushed = False
    pair = Pair(SyntheticWorld(1, 1), DOCUMENT, fault=fault)
    client = joined(pair, "agent", limits=SHORT)
    talk = client.conversation
    client.do(talk.watch([SIMULATION_TIME]))
    client.do(talk.reset(1))
    client.do(talk.step({"agent": [0.1]}))
    pushed = True
    before = len(pair.sent)
    outcome = client.do(talk.step({"agent": [0.2]}))["agent"]
    assert lost[0]
    assert outcome.values == {SIMULATION_TIME: "0.02"}
    codes = [d.data[0] for d in pair.sent[before:] if d.to_server]
    assert Code.NEXT_SIMULATION_STEP_COMPLETED_ACK in codes


# --- the clock ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e308", "-1e308", "5e-324", "", "0x10", "T"])
def test_a_clock_that_reads_nonsense_is_no_crash(text: str) -> None:
    machine, vote = on_stage(NERD)
    machine.clock.size = 1e-300
    machine.guarded = True
    machine.begin(barrier.step(machine, [vote]), 0.0)
    give(machine, NextSimulationStepAck(1), brought(0.5), ValueContent(5, text))
    while not machine.finished:
        next_timer(machine)
    with suppress(OspBridgeError):
        machine.result()


# --- completions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [0, 1, 3, 200])
def test_a_completion_of_another_size_than_announced_never_reaches_the_user(outputs: int) -> None:
    machine, vote = on_stage(NERD, outputs=2)
    machine.begin(barrier.step(machine, [vote]), 0.0)
    give(machine, NextSimulationStepAck(1), brought(*[0.5] * outputs))
    with pytest.raises(
        OutputsIncomplete, match=rf"with {outputs} outputs? and 0 infos, it announced 2 and 0"
    ):
        machine.result()
    assert machine.suspect


# --- interrupted in each phase ------------------------------------------------------------------------------


@BOTH
def test_a_reset_that_was_given_up_is_not_voted_for_twice_when_tried_again(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["mine", "theirs"]), profile)
    mine, theirs = joined(pair, "mine", limits=SHORT), joined(pair, "theirs")
    mine.do(mine.conversation.overview())
    for _ in range(3):
        with pytest.raises(BarrierStuck):
            mine.do(mine.conversation.reset(1))
    assert not pair.ledger, "a second vote stood for another client's"
    pair.run((mine, mine.conversation.reset(1)), (theirs, theirs.conversation.reset(1)))
    assert [entry["kind"] for entry in pair.ledger] == ["reset"]


# --- the end of a session -----------------------------------------------------------------------------------
