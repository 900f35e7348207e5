"""How a daemon leaves: told to, in mid-step, killed."""

from __future__ import annotations

import signal
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import HubLost
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.hub_client import HubClient, default_hub
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon, LocalDaemon, all_free, seat_of, until, values

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.loopback


class Waiting:
    """Who waits in a thread, and is told that the daemon is lost."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._told: list[HubLost] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except HubLost as error:
            self._told.append(error)

    def told(self) -> bool:
        self._thread.join(10)
        return len(self._told) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_told_to_stop_the_agents_are_free_within_three_seconds(simulator: UdpSimulator, number: int) -> None:
    """And every environment is told: who waits for the others' step, who acts next, and who looks on."""
    with LocalDaemon(simulator.address, quorum=2) as daemon:
        one, other = seat_of("agent1"), seat_of("agent2")
        observer = HubClient.connect().observe("agent1")
        resetting = threading.Thread(target=one.reset, args=(1,))
        resetting.start()
        other.reset(1)
        resetting.join(10)
        waits = Waiting(lambda: one.step(values(0.5)))
        looks_on = Waiting(lambda: [None for _ in observer])
        until(lambda: daemon.conductor.barrier._left)
        assert daemon.end(number) == 0
        assert all_free(simulator)
        assert not default_hub().exists()
        assert list(default_hub().parent.glob("leases/*")) == []
        assert waits.told()
        assert looks_on.told()
        with pytest.raises(HubLost):
            other.step(values(0.5))
        for each in (one, other):
            each.close()


def test_stopped_in_mid_step_it_still_leaves_within_three_seconds() -> None:
    world = SyntheticWorld(2, 3)
    with UdpSimulator(world, port=0, profile=DOCUMENT) as simulator, LocalDaemon(simulator.address) as daemon:
        seat = seat_of("agent")
        seat.reset(1)
        world._think = 0.5
        waits = Waiting(lambda: seat.step(values(0.5)))
        until(lambda: daemon.conductor.busy_since is not None)
        assert daemon.end() == 0
        assert waits.told()
        assert all_free(simulator)
        seat.close()


def test_killed_in_mid_step_the_next_daemon_has_all_agents_within_two_seconds(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(simulator.address, directory=tmp_path) as killed:
        seat = seat_of("agent1")
        seat.reset(1)

        def steps() -> None:
            while True:
                seat.step(values(0.5))

        waits = Waiting(steps)
        until(lambda: killed.status().steps > 10)
        killed.process.kill()
        killed.process.wait(10)
        assert waits.told()
        seat.close()
    assert not all_free(simulator)
    with LocalDaemon(simulator.address, agents=("agent1",)) as second:
        (joined,) = second.lines("joined")
        assert joined["agents"] == ["agent1"]
        with BlockingSession.connect(str(simulator.address)) as other, closing(seat_of("agent1")) as seat:
            other.register("agent2")
            for ours, theirs in (
                (lambda: seat.reset(3), lambda: (other.reset(3), other.step({"agent2": values(0.0)}))),
                (lambda: seat.step(values(0.5)), lambda: other.step({"agent2": values(0.25)})),
            ):
                thread = threading.Thread(target=ours)
                thread.start()
                theirs()
                thread.join(10)
                assert not thread.is_alive()
            assert second.status().steps == 2
