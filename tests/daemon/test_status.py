"""What ``ospbridge status`` shows of a daemon, and what a daemon counts."""

from __future__ import annotations

import json
import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from click.testing import Result

from ospbridge.daemon.measures import Measures
from ospbridge.hub.status import STEP_BOUNDS
from ospbridge.interface import Endpoint
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import LocalDaemon, free_port, run_here, seat_of, values

if TYPE_CHECKING:
    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


def test_status_without_a_daemon_says_how_to_start_one() -> None:
    done = run_here("status")
    assert done.exit_code == 69
    assert f"no daemon listens at {default_hub()}" in done.stderr
    assert "ospbridge connect" in done.stderr


def test_status_waits_until_the_agents_are_ready(document: UdpSimulator) -> None:
    found: list[Result] = []
    waiting = threading.Thread(target=lambda: found.append(run_here("status", "--wait", "20", "--json")))
    waiting.start()
    with LocalDaemon(document.address):
        waiting.join(30)
        (done,) = found
        assert done.exit_code == 0
        status = json.loads(done.stdout)
        assert status["ready"] is True
        assert status["simulator"] == str(document.address)
        assert status["profile"] == "document"
        assert status["connection"] == "joined"
        assert [agent["name"] for agent in status["agents"]] == ["agent1", "agent2"]
        assert status["pid"] == os.getpid()
        assert status["recording"] is None
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            done = run_here("status")
        assert done.exit_code == 0
        assert f"(pid {os.getpid()})" in done.stdout
        assert "agent2  free" in done.stdout
        assert "recording" not in done.stdout


def test_status_of_a_daemon_that_waits_for_its_simulator_is_not_ready() -> None:
    with LocalDaemon(Endpoint("127.0.0.1", free_port()), ready=False):
        done = run_here("status", "--wait", "0.2")
        assert done.exit_code == 69
        assert "waiting for the simulator" in done.stdout
        assert "not ready" in done.stderr


def test_a_step_is_counted_below_the_next_bound() -> None:
    measures = Measures()
    for seconds in (0.0, STEP_BOUNDS[0], STEP_BOUNDS[0] * 1.01, STEP_BOUNDS[-1], STEP_BOUNDS[-1] + 1):
        measures.stepped(seconds)
    times = measures.step_times
    assert times.counts[:2] == (2, 1)
    assert times.counts[-2:] == (1, 1)
    assert sum(times.counts) == 5
    assert times.seconds == pytest.approx(2 * STEP_BOUNDS[-1] + 1 + 2.01 * STEP_BOUNDS[0])


def test_a_running_daemon_tells_what_it_counted(document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon, closing(seat_of("agent1")) as seat:
        for _ in range(2):
            seat.reset(1)
            for _ in range(5):
                seat.step(values(0.5))
        status = daemon.status()
    assert sum(status.step_times.counts) == status.steps - status.resets == 10
    assert status.step_times.seconds > 0
    # One for each agent.
    assert status.datagrams.sent["NEXT_SIMULATION_STEP"] == 2 * status.steps
    assert status.datagrams.received["NEXT_SIMULATION_STEP_COMPLETED"] == 2 * status.steps
    assert status.datagrams.sent["INIT_COMMUNICATION"] >= 1
    assert status.datagrams.retries == 0
    assert status.clients == 2
    assert status.agents[0].lengths == [5]
    assert len(status.agents[0].returns) == 1
    assert status.rebuilds_by_reason == {}
