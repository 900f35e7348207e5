"""Sessions that died or fell silent: their agents are freed, and their place at a server that takes one client only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ospbridge.errors import SimulatorSilent
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import Limits
from ospbridge.session.lease import SessionLease, stale_leases
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.holes import HoledNetwork
from tests.session.drivers import Driver
from tests.session.servers import OneAtATime, bound, changed, content, leases, silent_server, wait_for

pytestmark = pytest.mark.loopback
BLOCKING = Driver()
PATIENT = Limits(connect=20.0)
"""Who is locked out is so for ever: no machine is too busy for this."""


@contextmanager
def deaf_to_others(profile: Profile = DOCUMENT) -> Iterator[UdpSimulator]:
    """It has room for one client, and answers no INIT while it believes that one there."""
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile, max_handlers=1) as running:
        yield running


@pytest.fixture(params=["deaf to others", "deaf to others, NERD", "one at a time"])
def single(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    """A server that takes one client only."""
    if request.param == "one at a time":
        with OneAtATime(SyntheticWorld(2, 3), DOCUMENT) as running:
            yield running
    else:
        with deaf_to_others(NERD if "NERD" in request.param else DOCUMENT) as server:
            yield server


def play(driver: Driver, server: Any, **options: Any) -> None:
    with driver.connect(server, **options) as session:
        session.register("agent")
        session.reset(1)
        session.step({"agent": [0.0, 0.0]})


def died(server: UdpSimulator, *, step: bool = False) -> None:
    """A session that controls the agent goes without a word, as that of a process that is killed."""
    session = BLOCKING.playing(server, "agent")
    if step:
        session.core.fill({"agent": [0.0, 0.0]})
        for request in session.core.filled:
            session.channel.sock.send(request.datagram)
        wait_for(lambda: server.machine.steps)
    session.disown()
    assert len(leases()) == 1


# --- processes that are killed --------------------------------------------------------------------------------------

VICTIM = """
import sys, time
from ospbridge.osp import connect
from ospbridge.session.blocking import BlockingSession
address, profile, state = sys.argv[1:]
if state == "answered":
    connect.COLLECT = 60.0
session = BlockingSession.connect(address, profile="auto" if state == "answered" else profile)
if state in ("idle", "mid-step"):
    session.register("agent")
    session.reset(1)
if state == "mid-step":
    print("step", flush=True)
    session.step({"agent": [0, 0]})
print("there", flush=True)
time.sleep(60)
"""


def kill(server: UdpSimulator, state: str) -> None:
    """A process that has come so far is killed without a chance to say goodbye."""
    arguments = [str(server.address), server.machine.profile.name, state]
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, *arguments], stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        try:
            if state == "answered":
                wait_for(leases)
            else:
                assert victim.stdout.readline()
            if state == "mid-step":
                wait_for(lambda: server.machine.steps)
        finally:
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait(10)


@pytest.mark.parametrize("state", ["idle", "mid-step"])
def test_agents_of_a_killed_process_are_reclaimed_by_its_lease(profile: Profile, state: str) -> None:
    world = SyntheticWorld(2, 1, think=0.5 if state == "mid-step" else 0.0)
    with UdpSimulator(world, port=0, profile=profile) as simulator:
        kill(simulator, state)
        world._think = 0.0
        play(BLOCKING, simulator)
    assert leases() == []


@pytest.mark.parametrize("state", ["answered", "without an agent"])
def test_a_process_that_is_killed_before_it_has_an_agent_locks_no_server(state: str) -> None:
    with OneAtATime(SyntheticWorld(2, 3), DOCUMENT) as server:
        kill(server, state)
        play(BLOCKING, server, limits=PATIENT)
    assert leases() == []


# --- servers that take one client only --------------------------------------------------------------------------------


def test_the_place_of_our_own_dead_session_is_taken(either: Driver, single: UdpSimulator) -> None:
    died(single, step=isinstance(single, OneAtATime))
    play(either, single, limits=PATIENT)
    assert leases() == []


def test_a_living_session_keeps_its_place(either: Driver, single: UdpSimulator) -> None:
    with BLOCKING.playing(single, "agent") as living:
        with pytest.raises(SimulatorSilent):
            play(either, single, limits=Limits(connect=0.3))
        living.step({"agent": [0.0, 0.0]})


def test_who_only_looks_says_goodbye_for_nobody() -> None:
    with deaf_to_others() as server:
        died(server)
        with pytest.raises(SimulatorSilent):
            BLOCKING.connect(server, limits=Limits(connect=0.3), reclaim_stale=False)
    assert len(leases()) == 1


def test_a_goodbye_that_was_lost_is_said_again(either: Driver) -> None:
    with deaf_to_others() as server, HoledNetwork(server.address) as network:
        host, port = network.address.split(":")
        session = BLOCKING.having(network.address, "agent", profile=DOCUMENT)
        session.disown()
        network.holed = True

        def passes_again() -> None:
            # Three INITs and a goodbye are lost.
            wait_for(lambda: network.swallowed > 3)
            network.holed = False

        closing = threading.Thread(target=passes_again)
        closing.start()
        play(either, Endpoint(host, int(port)), profile=DOCUMENT, limits=Limits(connect=20.0, close=0.3))
        closing.join(30)
        assert leases() == []


def test_however_many_leases_meet_silence_the_limit_holds_and_they_are_worth_as_much_as_before(
    either: Driver,
) -> None:
    with silent_server(dead=3) as address:
        with pytest.raises(SimulatorSilent, match=r"within \d\.\d s") as caught:
            play(either, address, limits=Limits(connect=0.6))
        # Who may hold the server is named, with the owner and the age of its lease.
        assert "a session of process 1 with agent that ended without a goodbye (lease of " in str(
            caught.value
        )
        assert [content(file).get("tries", 0) for file in leases()] == [0, 0, 0]


def test_leases_that_meet_silence_leave_init_its_share_of_the_time() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, HoledNetwork(simulator.address) as network:
        with silent_server(dead=2):
            for file in leases():
                changed(file, server_port=int(network.address.split(":")[1]))
            network.holed = True
            back = threading.Timer(0.3, lambda: setattr(network, "holed", False))
            back.start()
            # Goodbyes alone would take longer.
            play(BLOCKING, network.address, profile=DOCUMENT, limits=Limits(connect=1.5, close=0.75))
            back.join(10)
        # Once there was an answer to INIT, the silence of those handlers was their own.
        assert [content(file)["tries"] for file in leases()] == [1, 1]


def test_whoever_is_interrupted_behind_the_answer_says_goodbye(
    either: Driver, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(lease: SessionLease, *place: Any, **owed: Any) -> None:
        hold(lease, *place, **owed)
        raise KeyboardInterrupt

    hold = SessionLease.hold
    with deaf_to_others(profile) as server:
        with monkeypatch.context() as patched:
            patched.setattr(SessionLease, "hold", interrupted)
            with pytest.raises(KeyboardInterrupt):
                play(either, server)
        # Nobody says it once more for them.
        play(either, server, limits=PATIENT, reclaim_stale=False)
        play(either, server, limits=PATIENT)
    assert leases() == []


# --- sessions without an agent --------------------------------------------------------------------------------------


def test_a_session_holds_a_lease_as_long_as_it_is_there(either: Driver, simulator: UdpSimulator) -> None:
    with either.connect(simulator) as living:
        (file,) = leases()
        with either.connect(simulator) as other:
            assert other.agents()
        assert leases() == [file]
        assert list(stale_leases(simulator.address)) == []
        assert living.agents()
    assert leases() == []


def test_a_session_that_gave_its_agent_back_keeps_the_lease_of_its_place(simulator: UdpSimulator) -> None:
    session = BLOCKING.having(simulator, "agent1")
    session.deregister("agent1")
    session.disown()
    (file,) = leases()
    assert content(file)["agents"] == {}
    BLOCKING.connect(simulator).close()
    assert leases() == []


@pytest.mark.parametrize("agents, tries", [({}, 1), ({"agent1": 1}, 5)])
def test_a_lease_whose_handler_is_silent_is_given_up_after_a_few_tries(
    agents: dict[str, int], tries: int
) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, bound() as silent:
        BLOCKING.connect(simulator).disown()
        (file,) = leases()
        changed(file, handler_port=silent.getsockname()[1], agents=agents)
        for tried in range(1, tries + 1):
            assert leases() == [file]
            BLOCKING.connect(simulator, limits=Limits(close=0.4)).close()
            assert leases() == [] or content(file)["tries"] == tried
    assert leases() == []


def test_that_an_event_is_asked_for_stands_in_the_lease_before_it_is_asked(simulator: UdpSimulator) -> None:
    class Killed(BaseException):
        pass

    with BLOCKING.connect(simulator) as session:
        session.machine.begin(session.core.register_event("/Synthetic/Mark"), time.monotonic())
        (file,) = leases()
        assert content(file)["events"] is True
        session.machine.interrupt(Killed())
