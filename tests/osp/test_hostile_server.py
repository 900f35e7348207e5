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
    QueryTimeout,
    RemoteProtocolError,
    SessionEvicted,
    SessionLost,
    StepUncertain,
)
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.client import asking, roster
from ospbridge.osp.client.clock import SIMULATION_TIME, Moved, StepClock
from ospbridge.osp.client.listing import find_value, list_values
from ospbridge.osp.client.machine import OVERDUE_AT_MOST, ClientMachine
from ospbridge.osp.client.timekeeping import start_clock
from ospbridge.osp.client.unasked import RESET_COMPLETED
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import (
    AgentInfo,
    AgentInfoNext,
    AgentOverview,
    AgentOverviewNext,
    Message,
    NextSimulationStepAck,
    RegisterForEventAck,
    ResetCommunicationAck,
    StepCompleted,
    ValueContent,
    ValueIds,
    ValueInfo,
)
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.step.votes import Vote
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Client, Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ospbridge.osp.client.machine import Exchange

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
SHORT = Limits(query=2, listing=4, step=3, reset=4)


def joined(pair: Pair, *names: str, limits: Limits = SHORT) -> Client:
    client = pair.client(pair.server.profile, limits=limits).connect()
    client.do(client.conversation.register(names))
    return client


def on_stage(profile: Profile, *, outputs: int = 1) -> tuple[ClientMachine, Vote]:
    """A machine that controls an agent of one input and knows its clock, without a server."""
    machine = ClientMachine(profile, limits=SHORT)
    agent = AgentInterface(
        1, "agent", (InterfaceValue("/in", -1, 1),), (InterfaceValue("/out", -1, 1),) * outputs, ()
    )
    machine.controlled[1] = agent
    machine.clock.known = True
    machine.clock.value_id = 5
    machine.clock.start(0.0)
    machine.clock.size = 0.01
    return machine, Vote(agent, profile)


def give(machine: ClientMachine, *replies: Message) -> None:
    for reply in replies:
        machine.receive(reply.encode(), machine.now)


def brought(*outputs: float, observed: int = 0) -> StepCompleted:
    return StepCompleted(1, np.array(outputs, np.float32), np.empty(0, np.float32), (), observed)


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


@BOTH
@pytest.mark.parametrize("guarded", [False, True])
def test_what_is_read_late_is_no_silence_however_many_steps_it_is_so(profile: Profile, guarded: bool) -> None:
    """As where a learner takes its time between the two halves of each step."""
    machine, vote = on_stage(profile)
    machine.guarded = guarded
    for step in range(1, OVERDUE_AT_MOST + 2):
        machine.begin(barrier.step(machine, [vote]), machine.now)
        machine.now += 1.0
        shown = [ValueContent(5, f"{step / 100:g}")] if guarded else []
        give(machine, NextSimulationStepAck(1), brought(step), *shown)
        machine.result()
    assert not machine.notices


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
    client = joined(pair, "agent")
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
        assert machine.deadline is not None
        machine.handle_timer(machine.deadline)
    with suppress(OspBridgeError):
        machine.result()


def test_a_first_step_that_took_as_long_as_two_is_not_believed() -> None:
    clock = StepClock()
    clock.start(0.0)
    clock.believe(0.01)
    clock.forget()
    clock.start(0.0)
    assert clock.judge(0.02) is Moved.OTHERWISE
    clock.start(0.0)
    assert clock.judge(0.02) is Moved.ONCE, "said once: somebody may have changed the step size"


def test_a_step_size_that_was_set_is_learned_anew() -> None:
    clock = StepClock()
    clock.start(0.0)
    clock.believe(0.01)
    clock.unlearn()
    clock.start(0.0)
    assert clock.judge(0.02) is Moved.ONCE


def test_a_late_answer_about_another_variable_does_not_hide_the_clock() -> None:
    for late in (
        [ValueIds(0)],
        [ValueIds(1), ValueInfo(0, 9, "Double", "/Other")],
        [ValueInfo(0, 9, "Double", "/Other")],
    ):
        machine = ClientMachine(NERD, limits=SHORT)
        machine.anomaly("a question met silence")
        machine.begin(find_value(machine, SIMULATION_TIME), 0.0)
        give(machine, *late)
        give(machine, ValueIds(1), ValueInfo(0, 5, "Double", SIMULATION_TIME))
        if not machine.finished:
            assert machine.deadline is not None
            machine.handle_timer(machine.deadline)
            give(machine, ValueIds(1), ValueInfo(0, 5, "Double", SIMULATION_TIME))
        assert machine.result().id == 5


def test_a_late_answer_to_the_question_before_a_reset_is_not_the_clock_after_it() -> None:
    machine, _ = on_stage(NERD)
    machine.anomaly("a question met silence")
    machine.clock.forget()
    machine.begin(start_clock(machine), 0.0)
    give(machine, ValueContent(5, "0.37"), ValueContent(5, "0"), ValueContent(5, "0"))
    assert machine.finished
    assert machine.clock.base == 0.0


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


def test_a_completion_that_an_earlier_step_brought_too_is_read_back() -> None:
    held: list[Datagram] = []
    pair = Pair(SyntheticWorld(1, 2), NERD)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.reset(7))
    client.do(talk.step({"agent": [0.1]}))
    held[:] = [d for d in pair.sent if not d.to_server and d.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED]
    talk.machine.anomaly("a datagram came late")

    def fault(datagram: Datagram) -> Iterable[float]:
        if not datagram.to_server and datagram.data[0] == Code.NEXT_SIMULATION_STEP_ACK:
            pair.at(pair.now + 60e-6, lambda: client.arrive(held[0].data, client.conversation.handler))
        late = not datagram.to_server and datagram.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED
        return (0.2,) if late else (0.0,)

    pair.fault = fault
    outcome = client.do(talk.step({"agent": [0.9]}))["agent"]
    np.testing.assert_array_equal(outcome.outputs, expected(np.array([0.9], np.float32), 2, 2, seed=7))


def test_the_late_completion_of_a_restored_step_casts_no_doubt_on_the_episode() -> None:
    late = [False]

    def fault(datagram: Datagram) -> Iterable[float]:
        completed = not datagram.to_server and datagram.data[0] == Code.NEXT_SIMULATION_STEP_COMPLETED
        return (1.0,) if completed and late[0] else (0.0,)

    for outputs in (3, 300):
        late[0] = False
        pair = Pair(SyntheticWorld(1, outputs), NERD, fault=fault)
        client = joined(pair, "agent")
        talk = client.conversation
        client.do(talk.reset(7))
        client.do(talk.step({"agent": [0.1]}))
        late[0] = True
        assert client.do(talk.step({"agent": [0.2]}))["agent"].restored
        late[0] = False
        pair.settle(2.0)
        assert not talk.machine.suspect
        client.do(talk.step({"agent": [0.3]}))
        assert not client.do(talk.audit())


def test_the_completion_of_an_earlier_step_that_comes_in_a_later_one_casts_doubt_on_the_earlier() -> None:
    pair = Pair(SyntheticWorld(1, 1), NERD)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.reset(7))
    client.do(talk.step({"agent": [0.1]}))
    machine = talk.machine
    machine.begin(talk.step({"agent": [0.2]}), pair.now)
    give(machine, NextSimulationStepAck(1), brought(0.111))
    assert machine.finished, "the double of an earlier completion, which nothing tells from this step's"
    machine.begin(talk.step({"agent": [0.3]}), pair.now)
    give(machine, brought(0.222), NextSimulationStepAck(1), brought(0.333))
    clock = machine.clock.value_id
    while not machine.finished:
        give(machine, ValueContent(clock, "0.03"))
        if not machine.finished:
            give(machine, ValueIds(0))
        if machine.deadline is not None:
            machine.handle_timer(machine.deadline)
    assert "earlier step" in machine.suspect


def test_a_head_behind_its_pieces_is_asked_for_again() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(list_values(machine, ".*"), 0.0)
    pieces = [ValueInfo(index, index + 1, "Double", f"/v{index}") for index in range(40)]
    give(machine, *pieces, ValueIds(40))
    assert machine.deadline is not None
    machine.handle_timer(machine.deadline)
    give(machine, ValueIds(40), *pieces)
    assert len(machine.result()) == 40


def test_late_answers_do_not_mix_into_what_is_read_back() -> None:
    pair = Pair(SyntheticWorld(1, 2), NERD)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.reset(7))
    client.do(talk.step({"agent": [0.1]}))
    stale: list[bytes] = []
    asked: set[bytes] = set()

    def fault(datagram: Datagram) -> Iterable[float]:
        code = datagram.data[0]
        if not datagram.to_server and code == Code.NEXT_SIMULATION_STEP_COMPLETED:
            return ()
        if datagram.to_server and code == Code.GET_VALUE and stale and datagram.data not in asked:
            asked.add(datagram.data)
            for data in stale:
                if data[1:5] == datagram.data[1:5]:
                    pair.at(pair.now + 10e-6, lambda d=data: client.arrive(d, talk.handler))  # type: ignore[misc]
        return (0.0,)

    pair.fault = fault
    client.do(talk.step({"agent": [0.2]}))
    clock = talk.machine.clock.value_id
    answers = {d.data[:5]: d.data for d in pair.sent if not d.to_server and d.data[0] == Code.VALUE}
    stale[:] = [data for head, data in answers.items() if int.from_bytes(head[1:], "little") != clock]
    outcome = client.do(talk.step({"agent": [0.3]}))["agent"]
    assert outcome.restored
    np.testing.assert_array_equal(outcome.outputs, expected(np.array([0.3], np.float32), 3, 2, seed=7))


@BOTH
def test_an_agent_without_any_interface_value_steps(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(0, 0), profile)
    client = joined(pair, "agent")
    talk = client.conversation
    talk.machine.anomaly("a datagram came late")
    client.do(talk.reset(1))
    for _ in range(3):
        outcome = client.do(talk.step({"agent": []}))["agent"]
        assert outcome.outputs.shape == outcome.infos.shape == (0,)
    assert not client.do(talk.audit())


def test_unknown_event_ids_get_a_name() -> None:
    pair = Pair(SyntheticWorld(1, 1), NERD)
    client = joined(pair, "agent")
    talk = client.conversation
    client.do(talk.register_event("/Synthetic/Mark"))
    talk.machine.events.clear()
    client.do(talk.reset(1))
    told = [client.do(talk.step({"agent": [0.0]}))["agent"].events for _ in range(10)]
    assert told[-1] == ("event 1",)


# --- answers to earlier questions ---------------------------------------------------------------------------


def test_a_late_answer_about_another_event_is_not_this_ones() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.begin(asking.register_event(machine, "/One"), 0.0)
    give(machine, RegisterForEventAck(1))
    machine.begin(asking.register_event(machine, "/Two"), 1.0)
    give(machine, RegisterForEventAck(1), RegisterForEventAck(2))
    assert machine.result() == 2
    assert machine.events == {1: "/One", 2: "/Two"}


def test_a_late_unknown_is_not_the_answer_about_a_known_value() -> None:
    machine = ClientMachine(NERD, limits=SHORT)
    machine.anomaly("a question met silence")
    machine.begin(asking.get_value(machine, 5), 0.0)
    give(machine, ValueContent(-1, ""), ValueContent(5, "x"))
    if not machine.finished:
        give(machine, ValueContent(5, "x"))
    assert machine.result() == "x"


# --- interrupted in each phase ------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("after", range(12))
def test_a_step_interrupted_in_any_phase_is_never_followed_by_one_that_pretends_nothing_happened(
    profile: Profile, after: int
) -> None:
    pair = Pair(SyntheticWorld(1, 1, agents=2), profile)
    client = joined(pair, "agent1", "agent2")
    talk = client.conversation
    client.do(talk.reset(1))
    client.begin(talk.step({"agent1": [0.1], "agent2": [0.2]}))
    for _ in range(after):
        if not client.finished:
            pair.advance(until=pair.now + 10)
    if client.finished:
        return
    talk.machine.interrupt(RuntimeError("cancelled"))
    pair.settle()
    assert client.do(talk.audit())
    with pytest.raises(StepUncertain):
        client.do(talk.step({"agent1": [0.3], "agent2": [0.4]}))
    with pytest.raises(StepUncertain):
        client.do(talk.reset(2))
    assert client.do(talk.leave())
    assert pair.server.controlled == 0


@BOTH
@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("takes", [0.0, 0.2])
@pytest.mark.parametrize("after", range(16))
def test_a_reset_interrupted_in_any_phase_is_followed_by_one_of_its_own_seed(
    profile: Profile, after: int, takes: float, agents: int
) -> None:
    """Also where the world, which answers meanwhile, is still at the first one."""
    pair = Pair(SyntheticWorld(1, 1, agents=agents), profile)
    names = ["agent"] if agents == 1 else ["agent1", "agent2"]
    client = joined(pair, *names)
    talk = client.conversation
    inputs = np.array([0.5], np.float32)
    client.do(talk.reset(3))
    client.do(talk.step(dict.fromkeys(names, inputs)))

    def late(datagram: Datagram) -> Iterable[float]:
        completes = not datagram.to_server and datagram.data[0] in RESET_COMPLETED
        return (takes if completes else 0.0,)

    pair.fault = late
    client.begin(talk.reset(1))
    for _ in range(after):
        if not client.finished:
            pair.advance(until=pair.now + 10)
    talk.machine.interrupt(RuntimeError("cancelled"))
    client.do(talk.reset(7))
    for number in range(3):
        outcome = client.do(talk.step(dict.fromkeys(names, inputs)))
        np.testing.assert_array_equal(outcome[names[0]].outputs, expected(inputs, number + 1, 1, seed=7))
    assert not client.do(talk.audit())


@BOTH
@pytest.mark.parametrize("after", range(16))
def test_a_reset_interrupted_in_any_phase_leaves_a_session_that_resets_and_steps(
    profile: Profile, after: int
) -> None:
    pair = Pair(SyntheticWorld(1, 1, agents=2), profile)
    client = joined(pair, "agent1", "agent2")
    talk = client.conversation
    client.begin(talk.reset(1))
    for _ in range(after):
        if not client.finished:
            pair.advance(until=pair.now + 10)
    talk.machine.interrupt(RuntimeError("cancelled"))
    pair.settle()
    client.do(talk.reset(7))
    inputs = np.array([0.5], np.float32)
    for number in range(3):
        outcome = client.do(talk.step({"agent1": inputs, "agent2": inputs}))
        np.testing.assert_array_equal(outcome["agent1"].outputs, expected(inputs, number + 1, 1, seed=7))
    assert not client.do(talk.audit())


@BOTH
def test_a_reset_that_was_given_up_is_not_voted_for_twice_when_tried_again(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 1, names=["mine", "theirs"]), profile)
    mine, theirs = joined(pair, "mine"), joined(pair, "theirs")
    mine.do(mine.conversation.overview())
    for _ in range(3):
        with pytest.raises(BarrierStuck):
            mine.do(mine.conversation.reset(1))
    assert not pair.ledger, "a second vote stood for another client's"
    pair.run((mine, mine.conversation.reset(1)), (theirs, theirs.conversation.reset(1)))
    assert [entry["kind"] for entry in pair.ledger] == ["reset"]


# --- the end of a session -----------------------------------------------------------------------------------


def test_an_eviction_is_told_as_such_also_when_the_port_was_closed_by_then() -> None:
    machine, _ = on_stage(NERD)
    give(machine, ResetCommunicationAck())
    machine.handle_refused(1.0)
    with pytest.raises(SessionEvicted):
        machine.begin(roster.overview(machine), 2.0)


def test_a_server_that_falls_silent_in_each_phase_of_a_step_is_told_within_the_limits() -> None:
    for silent_after in range(12):
        pair = Pair(SyntheticWorld(1, 1, agents=2), NERD)
        client = joined(pair, "agent1", "agent2")
        talk = client.conversation
        client.do(talk.reset(1))
        client.do(talk.step({"agent1": [0.1], "agent2": [0.2]}))
        first = pair.count + silent_after
        pair.fault = lambda d, n=first: (0.0,) if d.number < n else ()  # type: ignore[misc]
        started = pair.now
        with suppress(SessionLost, StepUncertain, BarrierStuck, QueryTimeout, OutputsIncomplete):
            client.do(talk.step({"agent1": [0.3], "agent2": [0.4]}))
        assert pair.now - started < SHORT.step + 2 * SHORT.listing + SHORT.query
