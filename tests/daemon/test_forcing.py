"""Agents that others hold are freed by force only where the user allowed it, and not for ever."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import BarrierStuck, SessionLost
from ospbridge.session.blocking import BlockingSession
from tests.daemon.running import Daemon, run_program, seat_of, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


@pytest.fixture
def vanished(simulator: UdpSimulator, tmp_path: Path) -> Iterator[BlockingSession]:
    """A client of another kind that took an agent, and will never vote or leave: it left no lease of ours."""
    session = BlockingSession.connect(simulator.address, leases=tmp_path / "elsewhere")
    session.register("agent1")
    with session:
        yield session


@pytest.mark.usefixtures("vanished")
def test_without_a_word_of_the_user_nobody_is_disconnected(simulator: UdpSimulator) -> None:
    done = run_program("connect", "--simulator", str(simulator.address), "--agent", "agent1")
    assert done.returncode != 0
    assert "agent1" in done.stderr
    assert "restart-communication" in done.stderr


def test_an_agent_that_somebody_holds_is_taken_where_force_is_allowed(
    simulator: UdpSimulator, vanished: BlockingSession, tmp_path: Path
) -> None:
    with Daemon(simulator.address, "--force-restart", "--agent", "agent1", directory=tmp_path) as daemon:
        (said,) = daemon.lines("the communication is restarted")
        assert said["agents"] == ["agent1"]
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            seat.step(values(0.1))
        with pytest.raises(SessionLost):
            vanished.reset(1)
        assert daemon.end() == 0


def test_agents_that_are_not_wanted_are_left_to_who_holds_them(
    simulator: UdpSimulator, vanished: BlockingSession, tmp_path: Path
) -> None:
    with Daemon(simulator.address, "--force-restart", "--agent", "agent2", directory=tmp_path) as daemon:
        assert not daemon.lines("the communication is restarted")
        assert vanished.controlled == ("agent1",)
        vanished.agents()
        assert daemon.end() == 0


@pytest.mark.usefixtures("vanished")
def test_a_world_that_waits_for_others_is_freed_where_force_is_allowed(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    options = ("--force-restart", "--agent", "agent2", "--reset-timeout", "1")
    with Daemon(simulator.address, *options, directory=tmp_path) as daemon:
        with closing(seat_of("agent2")) as seat:
            with pytest.raises(BarrierStuck, match="agent1"):
                seat.reset(1)
            give_up = time.monotonic() + 30
            while not daemon.lines("the communication is restarted") or not daemon.status().ready:
                assert time.monotonic() < give_up
                time.sleep(0.05)
            seat.reset(2)
            seat.step(values(0.1))
        (said,) = daemon.lines("the communication is restarted")
        assert said["agents"] == ["agent1"]
        assert daemon.end() == 0


def test_those_who_come_back_are_not_disconnected_for_ever(simulator: UdpSimulator, tmp_path: Path) -> None:
    """Two daemons that want the same agent would evict each other without end."""
    options = ("--force-restart", "--agent", "agent1")
    with (
        Daemon(
            simulator.address, *options, "--hub", f"unix:{tmp_path}/one", directory=tmp_path, wait=False
        ) as one,
        Daemon(
            simulator.address, *options, "--hub", f"unix:{tmp_path}/two", directory=tmp_path, wait=False
        ) as two,
    ):
        give_up = time.monotonic() + 40
        logs = [one.log, two.log]
        # Whoever is evicted last waits, or ends where it had never joined.
        while not any(
            "not restarted again so soon" in log.read_text() or "controlled by another" in log.read_text()
            for log in logs
        ):
            assert time.monotonic() < give_up
            time.sleep(0.1)
        restarts = [log.read_text().count('"the communication is restarted"') for log in logs]
        assert max(restarts) <= 4, restarts
