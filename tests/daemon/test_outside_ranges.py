"""A daemon whose environments see sensors outside their ranges logs so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import Daemon
from tests.raw_world import RawWorld

if TYPE_CHECKING:
    from pathlib import Path

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


@pytest.mark.parametrize(
    "scenario, most, consequence",
    [("", np.inf, "observations leave their space"), ('out_of_range = "clip"', 1.0, "clipped")],
    ids=["passed", "clipped"],
)
def test_sensors_outside_their_ranges_are_logged_once(
    scenario: str, most: float, consequence: str, tmp_path: Path
) -> None:
    file = tmp_path / "ranges.toml"
    file.write_text(f'name = "ranges"\n[[agent]]\n[agent.observe]\n{scenario}\n', encoding="utf-8")
    with (
        UdpSimulator(RawWorld(1, 1), port=0) as simulator,
        Daemon(simulator.address, "--scenario", str(file), directory=tmp_path) as daemon,
    ):
        env = gymnasium.make("ospbridge/Agent-v0")
        for seed in (1, 2):
            seen = [env.reset(seed=seed)[0]]
            seen += [env.step(np.zeros(1, np.float32))[0] for _ in range(3)]
            assert np.all(np.minimum(seen, most) == seen)
            assert np.all(np.array(seen) >= 1.0)
        env.close()
        assert daemon.end() == 0
    told = [line for line in daemon.log.read_text().splitlines() if "the simulator is limited" in line]
    assert len(told) == 1
    assert (
        f"'/sensor/0' of agent 'agent' is 1.95312, outside its range from -1 to 1: {consequence}" in told[0]
    )
