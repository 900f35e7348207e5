"""Joining the simulator: absent, gone and back, evicted; and what cannot be joined."""

from __future__ import annotations

import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.daemon.choosing import OUT_OF_REACH
from ospbridge.errors import AgentTaken, SessionLost, SimulatorNotFound
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, all_free, free_port, run_program, seat_of, values

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


def test_an_absent_simulator_is_waited_for_and_said_once(tmp_path: Path) -> None:
    port = free_port()
    with Daemon(f"127.0.0.1:{port}", directory=tmp_path, wait=False) as daemon:
        assert not daemon.status().ready
        with pytest.raises(SimulatorNotFound, match=f"127.0.0.1:{port}"):
            seat_of("agent", wait=0.0)
        time.sleep(1.0)
        with UdpSimulator(SyntheticWorld(2, 3), port=port, profile=DOCUMENT):
            found = daemon.wait_ready()
            assert [agent.name for agent in found.agents] == ["agent"]
            assert len(daemon.lines("waiting for the simulator")) == 1
            assert daemon.end() == 0


def test_an_absent_simulator_is_given_up_after_the_time_that_was_asked_for(tmp_path: Path) -> None:
    done = run_program("connect", "--simulator", f"127.0.0.1:{free_port()}", "--wait", "0.3")
    assert done.returncode == 69
    assert "nothing listens" in done.stderr
    assert "Hint: start the simulator" in done.stderr
    assert not default_hub().exists()


def test_the_one_try_of_who_does_not_wait_has_the_time_that_a_try_may_take(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run_program("connect", "--simulator", there, "--wait", "0", "--connect-timeout", "0.9")
    assert done.returncode == 69
    assert f"no OSP 1.1 server answered at {there} within 0.9 s" in done.stderr


def test_told_to_stop_while_it_waits_for_the_simulator_it_stops(tmp_path: Path) -> None:
    with Daemon(f"127.0.0.1:{free_port()}", directory=tmp_path, wait=False) as daemon:
        daemon.status()
        assert daemon.end() == 0
    assert not default_hub().exists()


def test_a_session_that_is_lost_again_and_again_ends_the_daemon(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, directory=tmp_path) as daemon:
        for lost in range(11):
            give_up = time.monotonic() + 20
            while (found := daemon.status()).rebuilds < lost or not found.ready:
                assert time.monotonic() < give_up, found
                time.sleep(0.02)
            with BlockingSession.connect(str(document.address), reclaim_stale=False) as other:
                other.restart_communication()
        assert daemon.process.wait(20) == 75
        assert "lost too often" in daemon.log.read_text()
        assert all_free(document)


@pytest.mark.slow
def test_a_simulator_that_dies_while_nobody_plays_is_noticed(tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=DOCUMENT) as simulator:
        daemon = Daemon(simulator.address, directory=tmp_path)
    with daemon:
        give_up = time.monotonic() + 30
        while daemon.status().ready:
            assert time.monotonic() < give_up
            time.sleep(0.1)
        assert len(daemon.lines("the session is given up")) == 1


def test_a_simulator_that_comes_back_is_joined_again(tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=DOCUMENT) as simulator:
        port = simulator.address.port
        daemon = Daemon(simulator.address, directory=tmp_path)
        seat = seat_of("agent")
        seat.reset(1)
        seat.step(values(0.5))
    with daemon:
        cut = seat.step(values(0.5))
        assert cut.truncated
        assert not cut.terminated
        assert "gone" in cut.reason or "lost" in cut.reason or "ended" in cut.reason
        with UdpSimulator(SyntheticWorld(2, 3), port=port, profile=DOCUMENT):
            assert seat.reset(4).info["osp_seed"] == 4
            assert not seat.step(values(0.5)).truncated
            assert daemon.status().rebuilds == 1
            seat.close()
            assert daemon.end() == 0


def test_an_eviction_is_noticed_while_nobody_plays(simulator: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(simulator.address, directory=tmp_path) as daemon:
        with BlockingSession.connect(str(simulator.address), reclaim_stale=False) as other:
            other.restart_communication()
        give_up = time.monotonic() + 20
        while (found := daemon.status()).rebuilds == 0 or not found.ready:
            assert time.monotonic() < give_up, found
            time.sleep(0.05)
        seat = seat_of("agent1")
        seat.reset(1)
        assert not seat.step(values(0.5)).truncated
        seat.close()
        assert daemon.end() == 0


def test_an_agent_that_another_client_took_meanwhile_is_told_as_that_clients(tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as simulator:
        address = str(simulator.address)
        with Daemon(simulator.address, directory=tmp_path) as daemon:
            seat = seat_of("agent2")
            # It would take its agents again as soon as it hears that they are free.
            daemon.process.send_signal(signal.SIGSTOP)
            with BlockingSession.connect(address, reclaim_stale=False) as other:
                other.restart_communication()
            with BlockingSession.connect(address, reclaim_stale=False) as other:
                other.register("agent2")
                daemon.process.send_signal(signal.SIGCONT)
                give_up = time.monotonic() + 20
                while (found := daemon.status()).rebuilds == 0 or not found.ready:
                    assert time.monotonic() < give_up, found
                    time.sleep(0.05)
                with pytest.raises(SessionLost, match="agent 'agent2' is another client's since") as lost:
                    seat.reset(1)
                with pytest.raises(AgentTaken, match="another client of the simulator controls it") as taken:
                    seat_of("agent2")
                assert lost.value.hint == taken.value.hint == OUT_OF_REACH
                (said,) = daemon.lines("agents are missing")
                assert (said["agents"], said["held_by_others"]) == (["agent2"], ["agent2"])
                seat.close()
            assert daemon.end() == 0


def test_an_agent_that_a_simulator_came_back_without_is_told_in_the_log(tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=DOCUMENT) as simulator:
        port = simulator.address.port
        daemon = Daemon(simulator.address, directory=tmp_path)
        seat = seat_of("agent2")
        seat.reset(1)
    with daemon, UdpSimulator(SyntheticWorld(2, 3, names=["agent1"]), port=port, profile=DOCUMENT):
        assert seat.step(values(0.5)).truncated
        with pytest.raises(SessionLost, match="agent 'agent2' is gone since") as lost:
            seat.reset(1)
        assert lost.value.hint == "make the environment anew"
        (said,) = daemon.lines("agents are missing")
        assert (said["agents"], said["held_by_others"]) == (["agent2"], [])
        seat.close()
        assert daemon.end() == 0


def test_resets_of_others_are_acknowledged_while_nobody_plays(profile: Profile, tmp_path: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2), port=0, profile=profile) as simulator,
        BlockingSession.connect(str(simulator.address)) as other,
    ):
        other.register("agent2")
        with Daemon(simulator.address, directory=tmp_path) as daemon:
            seat = seat_of("agent1")
            for seed in (1, 2, 3):
                thread = threading.Thread(target=lambda seed=seed: seat.reset(seed))
                thread.start()
                other.reset(seed)
                other.step({"agent2": values(0.0)})
                thread.join(10)
                for _ in range(3):
                    thread = threading.Thread(target=lambda: seat.step(values(0.5)))
                    thread.start()
                    other.step({"agent2": values(0.25)})
                    thread.join(10)
            seat.close()
            assert daemon.status().steps == 12
            assert daemon.end() == 0


@pytest.mark.parametrize(
    "options, code, words",
    [
        (("--agent", "nobody*"), 2, "no agent 'nobody*'"),
        (("--quorum", "3"), 78, "can never be met"),
        (("--hub", "tcp:somewhere"), 78, "unix:PATH"),
        (("--hub", "unix:/" + 200 * "x"), 78, "107"),
        (("--hub", "unix:/proc/nowhere/hub"), 78, "cannot listen"),
        (("--simulator", "127.0.0.1:http"), 2, "not a number"),
        (("--quorums", "3"), 2, "--quorum"),
        (("--step-timeout", "0"), 2, "--step-timeout"),
    ],
)
def test_bad_input_is_one_sentence_and_a_hint(
    document: UdpSimulator, options: tuple[str, ...], code: int, words: str
) -> None:
    done = run_program("connect", "--simulator", str(document.address), *options)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert all_free(document)


def test_agents_of_another_client_are_left_alone(document: UdpSimulator, tmp_path: Path) -> None:
    with BlockingSession.connect(str(document.address)) as other:
        other.register("agent1")
        with Daemon(document.address, directory=tmp_path) as daemon:
            assert [agent.name for agent in daemon.status().agents] == ["agent2"]
            assert daemon.end() == 0
