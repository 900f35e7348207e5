"""How a daemon leaves: told to, in mid-step, killed."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import HubLost
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, all_free, await_line, seat_of, start, values

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_the_agents_are_free_within_three_seconds(
    simulator: UdpSimulator, tmp_path: Path, number: int
) -> None:
    with Daemon(simulator.address, directory=tmp_path) as daemon:
        seat = seat_of("agent1")
        seat.reset(1)
        seat.step(values(0.5))
        begun = time.monotonic()
        assert daemon.end(number) == 0
        assert time.monotonic() - begun < 3
        assert all_free(simulator)
        assert not default_hub().exists()
        assert list(default_hub().parent.glob("leases/*")) == []
        with pytest.raises(HubLost):
            seat.step(values(0.5))
        seat.close()


def test_stopped_in_mid_step_it_still_leaves_within_three_seconds(tmp_path: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, think=0.5), port=0, profile=DOCUMENT) as simulator,
        Daemon(simulator.address, directory=tmp_path) as daemon,
    ):
        player = start("agent", 1_000, 0.5)
        await_line(player, "attached")
        await_line(player, "playing")
        time.sleep(0.7)
        begun = time.monotonic()
        assert daemon.end() == 0
        assert time.monotonic() - begun < 3
        player.communicate(timeout=10)
        assert player.returncode == 1
        assert all_free(simulator)


def test_killed_in_mid_step_the_next_daemon_has_all_agents_within_two_seconds(
    profile: Profile, tmp_path: Path
) -> None:
    starting = time.monotonic()
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=2, think=0.05), port=0, profile=profile) as simulator,
        Daemon(simulator.address, directory=tmp_path) as daemon,
    ):
        # What it takes here and now until one that finds all agents free has them.
        usual = max(time.monotonic() - starting, START)
        player = start("agent1", 100_000, 0.5)
        await_line(player, "attached")
        await_line(player, "playing")
        time.sleep(0.3)
        daemon.process.kill()
        daemon.process.wait(10)
        player.communicate(timeout=10)
        assert not all_free(simulator)
        begun = time.monotonic()
        with Daemon(simulator.address, "--agent", "agent1", directory=tmp_path) as second:
            assert time.monotonic() - begun < 2 + usual
            (joined,) = second.lines("joined")
            assert joined["agents"] == ["agent1"]
            with BlockingSession.connect(str(simulator.address)) as other:
                other.register("agent2")
                seat = seat_of("agent1")
                results = []
                thread = threading.Thread(target=lambda: results.append(seat.reset(3)))
                thread.start()
                other.reset(3)
                other.step({"agent2": values(0.0)})
                thread.join(10)
                assert results
                thread = threading.Thread(target=lambda: results.append(seat.step(values(0.5))))
                thread.start()
                other.step({"agent2": values(0.25)})
                thread.join(10)
                assert len(results) == 2
                seat.close()


START = 1.5
"""Seconds that a Python process may need to start, beyond what the daemon itself takes."""
