"""``ospbridge status``."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import PROGRAM, Daemon, free_port, run_program, seat_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.loopback


def test_status_without_a_daemon_says_how_to_start_one() -> None:
    done = run_program("status")
    assert done.returncode == 69
    assert f"no daemon listens at {default_hub()}" in done.stderr
    assert "ospbridge connect" in done.stderr


def test_status_waits_until_the_agents_are_ready(document: UdpSimulator, tmp_path: Path) -> None:
    waiting = subprocess.Popen(
        [*PROGRAM, "status", "--wait", "20", "--json"], stdout=subprocess.PIPE, text=True
    )
    time.sleep(0.5)
    with Daemon(document.address, directory=tmp_path, wait=False):
        out, _ = waiting.communicate(timeout=30)
        assert waiting.returncode == 0
        found = json.loads(out)
        assert found["ready"] is True
        assert found["simulator"] == str(document.address)
        assert found["profile"] == "document"
        assert found["connection"] == "joined"
        assert [agent["name"] for agent in found["agents"]] == ["agent1", "agent2"]
        assert found["pid"] > 0
        seat = seat_of("agent1")
        seat.reset(1)
        done = run_program("status")
        assert done.returncode == 0
        assert (
            f"playing by pytest (pid {os.getpid()})" in done.stdout or f"(pid {os.getpid()})" in done.stdout
        )
        assert "agent2  free" in done.stdout
        seat.close()


def test_status_of_a_daemon_that_waits_for_its_simulator_is_not_ready(tmp_path: Path) -> None:
    with Daemon(f"127.0.0.1:{free_port()}", directory=tmp_path, wait=False) as daemon:
        daemon.status()
        done = run_program("status", "--wait", "2")
        assert done.returncode == 69
        assert "waiting for the simulator" in done.stdout
        assert "not ready" in done.stderr
