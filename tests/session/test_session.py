"""Sessions of either driver with the real simulator over loopback: steps, other clients, threads, and faults."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import trio

from ospbridge.errors import (
    AgentTaken,
    BarrierStuck,
    ConfigurationError,
    LocalProtocolError,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    SimulatorSilent,
    StepUncertain,
)
from ospbridge.observe.trace import TraceWriter, read_trace
from ospbridge.osp.notices import WorldReset, told_by
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.repository import text_variable
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.plain import PlainTask
from tests.session.drivers import Driver
from tests.session.servers import bound, closed_port, wait_for

pytestmark = pytest.mark.loopback
BLOCKING = Driver()


def test_a_whole_session_steps_and_leaves(either: Driver, simulator: UdpSimulator) -> None:
    with either.connect(simulator) as session:
        assert session.profile is simulator.machine.profile
        assert session.matching(()) == ("agent1", "agent2")
        session.register("agent1", "agent2")
        session.reset(7)
        for number in range(20):
            inputs = {
                name: (np.array([number, at]) / 64).astype(np.float32)
                for at, name in enumerate(session.controlled)
            }
            for name, outcome in session.step(inputs).items():
                np.testing.assert_array_equal(outcome.outputs, expected(inputs[name], number + 1, 3, seed=7))
        assert session.audit() == ""
    assert not simulator.machine.controlled
    session.close()
    with pytest.raises(SessionClosed):
        session.agents()


def test_the_kind_of_server_is_found(either: Driver, simulator: UdpSimulator) -> None:
    with either.connect(simulator.address) as session:
        assert session.profile is simulator.machine.profile


def test_closed_and_silent_ports_are_told(either: Driver) -> None:
    port = closed_port()
    with pytest.raises(SimulatorNotFound, match=f"nothing listens at 127.0.0.1:{port}"):
        either.connect(f"127.0.0.1:{port}")
    with bound() as silent, pytest.raises(SimulatorSilent, match="server answered at"):
        either.connect(f"127.0.0.1:{silent.getsockname()[1]}", limits=Limits(connect=0.2))


def test_a_simulator_that_dies_is_noticed_with_the_next_datagram(either: Driver, profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator:
        session = either.playing(simulator, "agent")
    with pytest.raises(SessionLost):
        session.step({"agent": [0.0]})
    session.close()


def test_losses_on_the_wire_cost_no_step_and_no_session(profile: Profile) -> None:
    ledger: list[dict[str, object]] = []
    with (
        UdpSimulator(
            SyntheticWorld(1, 2),
            port=0,
            profile=profile,
            faults=FaultPlan(drop=0.02, seed=8),
            ledger=ledger.append,
        ) as simulator,
        BLOCKING.connect(simulator) as session,
    ):
        session.register("agent")
        session.reset(3)
        for number in range(20):
            inputs = np.array([number / 128], np.float32)
            outcome = session.step({"agent": inputs})["agent"]
            np.testing.assert_array_equal(outcome.outputs, expected(inputs, number + 1, 2, seed=3))
        assert session.audit() == ""
        assert told_by(session.pop_notices()).anomalies
    assert sum(entry["kind"] == "step" for entry in ledger) == 20


def test_a_big_agent_and_a_big_repository_arrive_over_real_sockets(profile: Profile) -> None:
    with (
        UdpSimulator(SyntheticWorld(1000, 1500, 500, values=3_000), port=0, profile=profile) as simulator,
        BLOCKING.connect(simulator) as session,
    ):
        agent = session.describe("agent")
        assert (len(agent.inputs), len(agent.outputs), len(agent.infos)) == (1000, 1500, 500)
        names = [value.name for value in session.values()]
        assert len(names) == len(set(names)) > 6_000


def test_a_trace_holds_every_datagram_with_its_meaning(
    either: Driver, simulator: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as trace, either.playing(simulator, "agent1", trace=trace) as session:
        session.step({"agent1": [0.0, 0.5]})
    notes = [record.note for record in read_trace(path)]
    assert any("NEXT_SIMULATION_STEP agent 1" in note for note in notes)
    assert any("INIT_COMMUNICATION" in note for note in notes)


# --- events and variables -------------------------------------------------------------------------------------------


def test_events_are_told_to_all_agents_of_the_session_though_the_server_tells_them_once(
    simulator: UdpSimulator,
) -> None:
    with BLOCKING.having(simulator, "agent1", "agent2") as session:
        assert session.register_event("/Synthetic/Mark")
        session.reset(1)
        told = [session.step({"agent1": [0, 0], "agent2": [0, 0]}) for _ in range(20)]
        events = [(step["agent1"].events, step["agent2"].events) for step in told]
        assert all(one == two for one, two in events)
        assert {one for one, _ in events} == {("/Synthetic/Mark",), ()}
    # One that registered for an event leaves a NERD server so, which END would kill.
    assert not simulator.machine.controlled


def test_an_event_that_a_task_wants_and_the_server_does_not_have_is_told(simulator: UdpSimulator) -> None:
    with BLOCKING.connect(simulator) as session:
        tasks = [PlainTask(agent, bounded=True) for agent in session.register("agent1", "agent2")]
        tasks[1].events = ["/No/Such"]
        with pytest.raises(
            ConfigurationError, match="no event '/No/Such', which the task of agent 'agent2' wants"
        ):
            session.subscribe(tasks)


def test_a_step_brings_the_variables_that_are_watched(either: Driver) -> None:
    name = "/Synthetic/Value/00001"
    with (
        UdpSimulator(SyntheticWorld(1, 1, values=3), port=0) as simulator,
        either.connect(simulator) as session,
    ):
        session.register("agent")
        session.reset(1)
        session.watch(name)
        assert list(session.step({"agent": [0.0]})["agent"].values) == [name]


def test_a_server_gets_texts_back_as_it_gave_them() -> None:
    """In UTF-8 or not: this one has a byte F6 of Latin-1."""
    name, knee = "/Lab/Gr\xf6\xdfe", "Kn\uf7f6chel"
    world = SyntheticWorld(2, 3)
    world.variables = [*world.variables, text_variable(name, knee)]
    with UdpSimulator(world, port=0) as simulator, BLOCKING.connect(simulator) as session:
        for content in (knee, "\u673a\u5668\u4eba", knee):
            session.set(name, content)
            assert session.get(name).value == content
        assert [entry.name for entry in session.values(".*\xf6\xdf.*")] == [name]


# --- other clients --------------------------------------------------------------------------------------------------


def test_a_session_at_rest_sees_resets_of_others(either: Driver, simulator: UdpSimulator) -> None:
    with either.connect(simulator) as watcher, either.connect(simulator) as driver:
        assert watcher.pop_notices() == []
        driver.register("agent1")
        driver.reset(1)
        notices: list[object] = []
        wait_for(lambda: notices.__iadd__(watcher.pop_notices()))
        assert [type(notice) for notice in notices] == [WorldReset]


def test_an_agent_of_another_client_is_taken(either: Driver, simulator: UdpSimulator) -> None:
    with either.connect(simulator) as first, either.connect(simulator) as second:
        first.register("agent1")
        with pytest.raises(AgentTaken, match="is controlled by another client"):
            second.register("agent1")
        assert second.matching(["agent*"]) == ("agent2",)


def test_a_reset_alone_among_two_is_stuck_and_its_session_still_leaves(
    either: Driver, simulator: UdpSimulator
) -> None:
    with either.having(simulator, "agent2") as other:
        mine = either.having(simulator, "agent1", limits=Limits(reset=0.3))
        with mine, pytest.raises(BarrierStuck, match="agent2"):
            mine.reset(1)
        assert {entry.name: entry.available for entry in other.agents()}["agent1"]


def test_restarting_the_communication_frees_everybodys_agents(
    either: Driver, simulator: UdpSimulator
) -> None:
    first = either.having(simulator, "agent1")
    with either.connect(simulator) as second:
        second.restart_communication()
    wait_for(lambda: not simulator.machine.controlled)
    with pytest.raises(SessionLost):
        first.reset(1)
    first.close()


# --- steps that somebody gives up, and use that does not fit ----------------------------------------------------------


@pytest.mark.trio
async def test_cancelling_a_step_leaves_the_session_to_be_rebuilt_and_its_agents_free() -> None:
    world = SyntheticWorld(1, 1, think=0.3)
    with UdpSimulator(world, port=0, profile=NERD) as simulator:
        session = await TrioSession.connect(simulator.address, profile=NERD)
        await session.register("agent")
        await session.reset(1)
        with trio.move_on_after(0.05) as scope:
            await session.step({"agent": [0.0]})
        assert scope.cancelled_caught
        with pytest.raises(StepUncertain, match="outstanding"):
            await session.reset(2)
        await session.aclose()
        assert not simulator.machine.controlled


def step_on(session: BlockingSession, stepping: Event) -> None:
    """Until that raises."""
    while True:
        session.step({"agent": np.zeros(2)})
        stepping.set()


@pytest.mark.parametrize("use", ["agents", "step", "step_one"])
def test_a_thread_that_comes_into_the_midst_of_anothers_step_is_told_so(use: str) -> None:
    world = SyntheticWorld(2, 3, think=0.1)
    with UdpSimulator(world, port=0) as simulator, ThreadPoolExecutor(1) as threads:
        session = BLOCKING.playing(simulator, "agent")
        given = {"agents": (), "step": ({"agent": np.zeros(2)},), "step_one": (np.zeros(2),)}[use]
        stepping = Event()
        other = threads.submit(step_on, session, stepping)
        assert stepping.wait(20)
        # It might come between two steps of the other one, which then is told.
        with pytest.raises(LocalProtocolError, match="two threads used the connection to") as caught:  # noqa: PT012
            for _ in range(100):
                getattr(session, use)(*given)
                if other.done():
                    other.result()
        assert "lock" in caught.value.hint
        session.close()
        assert other.exception(20) is not None


def test_ctrl_c_between_the_parts_of_an_exchange_ends_it(
    simulator: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: BlockingSession) -> None:
        raise KeyboardInterrupt

    with BLOCKING.connect(simulator) as session:
        with monkeypatch.context() as patched:
            patched.setattr(BlockingSession, "await_end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                session.agents()
        assert [entry.name for entry in session.agents()] == ["agent1", "agent2"]


def test_a_forgotten_session_gives_its_agents_back(simulator: UdpSimulator) -> None:
    session = BLOCKING.having(simulator, "agent1")
    del session
    gc.collect()
    wait_for(lambda: not simulator.machine.controlled)


def test_a_forked_childs_collector_does_not_end_the_session_of_its_parent() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        session = BLOCKING.playing(simulator, "agent")
        child = os.fork()
        if child == 0:
            try:
                del session
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.step({"agent": [0.0, 0.0]})
        session.close()
