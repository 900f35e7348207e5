"""What a daemon counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.daemon.measures import Measures
from ospbridge.hub.status import STEP_BOUNDS
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon

if TYPE_CHECKING:
    from pathlib import Path

assert ospbridge.__version__


def test_a_step_is_counted_below_the_next_bound() -> None:
    measures = Measures()
    for seconds in (0.0, STEP_BOUNDS[0], STEP_BOUNDS[0] * 1.01, STEP_BOUNDS[-1], STEP_BOUNDS[-1] + 1):
        measures.stepped(seconds)
    times = measures.step_times
    assert times.counts[:2] == (2, 1)
    assert times.counts[-2:] == (1, 1)
    assert sum(times.counts) == 5
    assert times.seconds == pytest.approx(2 * STEP_BOUNDS[-1] + 1 + 2.01 * STEP_BOUNDS[0])


@pytest.mark.loopback
def test_a_running_daemon_tells_what_it_counted(tmp_path: Path) -> None:
    world = SyntheticWorld(1, 1, 0, names=["one"])
    with (
        UdpSimulator(world, port=0, profile=DOCUMENT) as simulator,
        Daemon(simulator.address, directory=tmp_path),
    ):
        env = gymnasium.make("ospbridge/Agent-v0", agent="one", max_episode_steps=None)
        for _ in range(2):
            env.reset()
            for _ in range(5):
                env.step(np.zeros(1, np.float32))
        client = HubClient.connect()
        status = client.status()
        client.close()
        env.close()
    assert sum(status.step_times.counts) == status.steps - status.resets
    assert status.step_times.seconds > 0
    assert status.datagrams.sent["NEXT_SIMULATION_STEP"] == status.steps
    assert status.datagrams.received["NEXT_SIMULATION_STEP_COMPLETED"] == status.steps
    assert status.datagrams.sent["INIT_COMMUNICATION"] >= 1
    assert status.datagrams.retries == 0
    assert status.clients == 2
    (one,) = status.agents
    assert one.lengths == [5]
    assert len(one.returns) == 1
    assert status.rebuilds_by_reason == {}
