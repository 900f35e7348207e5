"""The blocking session against the real simulator over loopback."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from ospbridge.errors import (
    AgentNotFound,
    AgentTaken,
    BarrierStuck,
    ConfigurationError,
    LocalProtocolError,
    SessionClosed,
    SessionLost,
    SimulatorNotFound,
    SimulatorSilent,
)
from ospbridge.observe.trace import TraceWriter, read_trace
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import stale_leases
from ospbridge.session.link import Link
from ospbridge.simulator.faults import FaultPlan
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.addresses import parse_endpoint

pytestmark = pytest.mark.loopback


@pytest.fixture
def simulator(profile: Profile) -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3, 1, agents=2), port=0, profile=profile) as running:
        yield running


def test_a_whole_session_finds_the_profile_and_steps(simulator: UdpSimulator, profile: Profile) -> None:
    with BlockingSession.connect(str(simulator.address)) as session:
        assert session.profile is profile
        assert [entry.name for entry in session.agents()] == ["agent1", "agent2"]
        session.register("agent1", "agent2")
        session.reset(7)
        for number in range(50):
            inputs = {
                name: (np.array([number, at]) / 64).astype(np.float32)
                for at, name in enumerate(session.controlled)
            }
            for name, outcome in session.step(inputs).items():
                np.testing.assert_array_equal(outcome.outputs, expected(inputs[name], number + 1, 3, seed=7))
        assert session.audit() == ""


def test_a_step_needs_the_agents_it_is_for(simulator: UdpSimulator) -> None:
    inputs = np.zeros(2, np.float32)
    session = BlockingSession.connect(str(simulator.address))
    with pytest.raises(LocalProtocolError, match="controls no agent cannot step"):
        session.step({"agent1": inputs})
    session.register("agent1", "agent2")
    session.reset(1)
    with pytest.raises(LocalProtocolError, match="controls 2 agents, not one"):
        session.step_one(inputs)
    with pytest.raises(LocalProtocolError, match=r"missing \['agent2'\], not controlled \['other'\]"):
        session.step({"agent1": inputs, "other": inputs})
    session.close()
    for late in (lambda: session.step({"agent1": inputs}), lambda: session.step_one(inputs)):
        with pytest.raises(SessionClosed):
            late()


def test_a_closed_port_is_told_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(SimulatorNotFound, match=f"nothing listens at 127.0.0.1:{port}"):
        BlockingSession.connect(f"127.0.0.1:{port}")
    assert time.monotonic() - started < 5


def test_a_port_that_speaks_something_else_is_told_after_the_limit() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(SimulatorSilent, match="server answered at"):
            BlockingSession.connect(f"127.0.0.1:{held.getsockname()[1]}", limits=Limits(connect=0.6))


@pytest.mark.parametrize(
    "address", ["", ":1", "127.0.0.1:x", "127.0.0.1:0", "127.0.0.1:70000", "no.such.host.invalid:1"]
)
def test_an_address_that_is_none_is_told(address: str) -> None:
    with pytest.raises(ConfigurationError):
        BlockingSession.connect(address)


def test_addresses_are_read_as_users_write_them() -> None:
    assert str(parse_endpoint("localhost")) == "localhost:45454"
    assert str(parse_endpoint("[::1]:9")) == "[::1]:9"
    assert str(parse_endpoint("::1")) == "[::1]:45454"


def test_closing_twice_and_using_a_closed_session(simulator: UdpSimulator) -> None:
    session = BlockingSession.connect(str(simulator.address))
    session.close()
    session.close()
    with pytest.raises(SessionClosed):
        session.agents()


def test_a_step_ends_whose_session_another_thread_closes_in_the_middle(profile: Profile) -> None:
    """With which error is a matter of where the two threads met: sessions are for one of them at a time."""
    world = SyntheticWorld(2, 3, think=0.002)
    with UdpSimulator(world, port=0, profile=profile) as simulator, ThreadPoolExecutor(1) as threads:
        for number in range(5):
            session = BlockingSession.connect(simulator.address)
            session.register("agent")
            session.reset(1)
            stepping = Event()
            ended = threads.submit(step_on, session, stepping)
            assert stepping.wait(20)
            time.sleep(number / 2_000)
            session.close()
            assert ended.exception(20) is not None


@pytest.mark.parametrize("use", ["agents", "step", "step_one"])
def test_a_thread_that_comes_into_the_midst_of_anothers_step_is_told_so(profile: Profile, use: str) -> None:
    world = SyntheticWorld(2, 3, think=0.1)
    with UdpSimulator(world, port=0, profile=profile) as simulator, ThreadPoolExecutor(1) as threads:
        session = BlockingSession.connect(simulator.address)
        session.register("agent")
        session.reset(1)
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


def test_an_error_of_one_thread_alone_stays_what_it_is(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(str(simulator.address)) as session, ThreadPoolExecutor(1) as threads:
        for use in (session.describe, lambda name: threads.submit(session.describe, name).result(20)):
            with pytest.raises(AgentNotFound):
                use("nobody")


def test_ctrl_c_between_the_parts_of_an_exchange_ends_it(
    simulator: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = Link.complete

    def interrupt(_: Link) -> None:
        monkeypatch.setattr(Link, "complete", complete)
        raise KeyboardInterrupt

    with BlockingSession.connect(str(simulator.address)) as session:
        monkeypatch.setattr(Link, "complete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            session.agents()
        assert [entry.name for entry in session.agents()] == ["agent1", "agent2"]


def step_on(session: BlockingSession, stepping: Event) -> None:
    """Until that raises."""
    while True:
        session.step({"agent": np.zeros(2)})
        stepping.set()


@pytest.mark.timeout(20)
def test_whatever_is_under_way_when_another_thread_closes_the_socket_ends(simulator: UdpSimulator) -> None:
    session = BlockingSession.connect(simulator.address)
    # As closing does at its end.
    session._socket.close()
    with pytest.raises(SessionClosed, match="by another thread"):
        session.agents()
    session.close()


def test_a_forgotten_session_gives_its_agents_back(simulator: UdpSimulator) -> None:
    session = BlockingSession.connect(str(simulator.address))
    session.register("agent1")
    del session
    gc.collect()
    with BlockingSession.connect(simulator.address, reclaim_stale=False) as other:
        assert all(entry.available for entry in other.agents())


def test_a_session_at_rest_sees_resets_of_others(simulator: UdpSimulator) -> None:
    with (
        BlockingSession.connect(simulator.address) as watcher,
        BlockingSession.connect(simulator.address) as driver,
    ):
        assert watcher.take_notices() == []
        driver.register("agent1")
        driver.reset(1)
        give_up = time.monotonic() + 5
        while not (notices := watcher.take_notices()) and time.monotonic() < give_up:
            time.sleep(0.01)
        assert [type(notice) for notice in notices] == [WorldReset]


def test_an_agent_of_another_client_is_taken(simulator: UdpSimulator) -> None:
    with (
        BlockingSession.connect(str(simulator.address)) as first,
        BlockingSession.connect(str(simulator.address)) as second,
    ):
        first.register("agent1")
        with pytest.raises(AgentTaken, match="is controlled by another client"):
            second.register("agent1")
        assert second.matching(["agent*"]) == ("agent2",)


def test_a_reset_alone_among_two_is_stuck_and_its_session_still_leaves(simulator: UdpSimulator) -> None:
    address = str(simulator.address)
    with BlockingSession.connect(address) as other:
        other.register("agent2")
        with BlockingSession.connect(address, limits=Limits(reset=0.5)) as mine:
            mine.register("agent1")
            with pytest.raises(BarrierStuck, match="agent2"):
                mine.reset(1)
        assert {entry.name: entry.available for entry in other.agents()}["agent1"]


def test_a_simulator_that_dies_is_noticed_with_the_next_datagram(profile: Profile) -> None:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=profile) as simulator:
        session = BlockingSession.connect(str(simulator.address))
        session.register("agent")
        session.reset(1)
    with pytest.raises(SessionLost):
        session.step({"agent": [0.0]})
    session.close()


def test_losses_on_the_wire_cost_no_step_and_no_session(profile: Profile) -> None:
    faults = FaultPlan(drop=0.02, seed=5)
    ledger: list[dict[str, object]] = []
    with (
        UdpSimulator(
            SyntheticWorld(1, 2), port=0, profile=profile, faults=faults, ledger=ledger.append
        ) as simulator,
        BlockingSession.connect(str(simulator.address)) as session,
    ):
        session.register("agent")
        session.reset(3)
        for number in range(40):
            inputs = np.array([number / 128], np.float32)
            outcome = session.step({"agent": inputs})["agent"]
            np.testing.assert_array_equal(outcome.outputs, expected(inputs, number + 1, 2, seed=3))
        assert session.audit() == ""
        assert session.machine.retries > 0
    assert sum(entry["kind"] == "step" for entry in ledger) == 40


def test_a_big_agent_and_a_big_repository_arrive_over_real_sockets(profile: Profile) -> None:
    world = SyntheticWorld(1000, 1500, 500, values=10_000)
    with (
        UdpSimulator(world, port=0, profile=profile) as simulator,
        BlockingSession.connect(str(simulator.address)) as session,
    ):
        agent = session.describe("agent")
        assert (len(agent.inputs), len(agent.outputs), len(agent.infos)) == (1000, 1500, 500)
        names = [value.name for value in session.values()]
        assert len(names) == len(set(names)) > 13_000


def test_a_trace_holds_every_datagram_with_its_meaning(simulator: UdpSimulator, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path) as trace, BlockingSession.connect(str(simulator.address), trace=trace) as session:
        session.register("agent1")
        session.reset(1)
        session.step({"agent1": [0.0, 0.5]})
    notes = [record.note for record in read_trace(path)]
    assert any("NEXT_SIMULATION_STEP agent 1" in note for note in notes)
    assert any("INIT_COMMUNICATION" in note for note in notes)


VICTIM = """
import sys, time
from ospbridge.session.blocking import BlockingSession
session = BlockingSession.connect(sys.argv[1])
session.register("agent1", "agent2")
session.reset(1)
print("registered", flush=True)
if sys.argv[2] == "mid-step":
    session.step({"agent1": [0, 0], "agent2": [0, 0]})
time.sleep(60)
"""


def killed_victim(address: str, state: str, world: SyntheticWorld) -> None:
    """A process that controls both agents, killed without a chance to say goodbye."""
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, address, state], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "registered\n"
        give_up = time.monotonic() + 20
        while state == "mid-step" and not world._steps:
            assert time.monotonic() < give_up
            time.sleep(0.005)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait(10)


def test_a_forked_childs_collector_does_not_end_the_session_of_its_parent() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        session = BlockingSession.connect(str(simulator.address))
        session.register("agent")
        session.reset(1)
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


@pytest.mark.parametrize("state", ["idle", "mid-step"])
def test_agents_of_a_killed_process_are_reclaimed_by_its_lease(profile: Profile, state: str) -> None:
    world = SyntheticWorld(2, 1, agents=2, think=1.0 if state == "mid-step" else 0.0)
    with UdpSimulator(world, port=0, profile=profile) as simulator:
        killed_victim(str(simulator.address), state, world)
        world._think = 0.0
        with BlockingSession.connect(str(simulator.address)) as session:
            assert all(entry.available for entry in session.agents())
            session.register("agent1")
            session.reset(1)
            session.step({"agent1": [0, 0]})
        assert list(stale_leases(session.server)) == []


def test_a_living_session_keeps_its_agents_from_successors(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(str(simulator.address)) as first:
        first.register("agent1")
        with BlockingSession.connect(str(simulator.address)) as second:
            assert not second.agents()[0].available


def test_after_events_a_nerd_servers_session_leaves_by_giving_back(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(str(simulator.address)) as session:
        session.register("agent1")
        assert session.register_event("/Synthetic/Mark")
    with BlockingSession.connect(simulator.address, reclaim_stale=False) as other:
        assert all(entry.available for entry in other.agents())


def test_events_are_told_to_all_agents_of_the_session_though_the_server_tells_them_once() -> None:
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        BlockingSession.connect(str(simulator.address)) as session,
    ):
        session.register("agent1", "agent2")
        assert session.register_event("/Synthetic/Mark")
        session.reset(1)
        told = [session.step({"agent1": [0], "agent2": [0]}) for _ in range(20)]
        events = [(step["agent1"].events, step["agent2"].events) for step in told]
        assert all(one == two for one, two in events)
        assert ("/Synthetic/Mark",) in [one for one, _ in events]
        assert () in [one for one, _ in events]


def test_restarting_the_communication_frees_everybodys_agents(simulator: UdpSimulator) -> None:
    first = BlockingSession.connect(str(simulator.address))
    first.register("agent1")
    with BlockingSession.connect(str(simulator.address)) as second:
        second.restart_communication()
    time.sleep(0.15)
    with BlockingSession.connect(str(simulator.address)) as third:
        assert all(entry.available for entry in third.agents())
    with pytest.raises(SessionLost):
        first.reset(1)
    first.close()
