"""A daemon whose environments see sensors outside their ranges logs so."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.making import task_maker
from ospbridge.task.reading import read
from tests.daemon.running import LocalDaemon, seat_of
from tests.raw_world import RawWorld


@pytest.mark.loopback
@pytest.mark.parametrize(
    "scenario, most, consequence",
    [("", np.inf, "observations leave their space"), ('out_of_range = "clip"', 1.0, "clipped")],
    ids=["passed", "clipped"],
)
def test_sensors_outside_their_ranges_are_logged_once(scenario: str, most: float, consequence: str) -> None:
    maker = task_maker(read(f'name = "ranges"\n[[agent]]\n[agent.observe]\n{scenario}\n'))
    with UdpSimulator(RawWorld(1, 1), port=0) as simulator:
        with LocalDaemon(simulator.address, make_task=maker) as daemon, closing(seat_of("agent")) as seat:
            for seed in (1, 2):
                seen = [seat.reset(seed).observation]
                seen += [seat.step(np.zeros(1, np.float32)).observation for _ in range(3)]
                assert np.all(np.minimum(seen, most) == seen)
                assert np.all(np.array(seen) >= 1.0)
        (told,) = daemon.lines("the simulator is limited")
    assert (
        f"'/sensor/0' of agent 'agent' is 1.95312, outside its range from -1 to 1: {consequence}"
        in told["reason"]
    )
