"""The scenarios of the A-Series and the Volksbot, played at their stand-ins as at a NERD server."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.osp.profile import NERD
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load

pytestmark = pytest.mark.loopback

SCENARIOS = {
    "aseries_stand": "ospbridge/ASeriesStand-v0",
    "aseries_walk": "ospbridge/ASeriesWalk-v0",
    "volksbot": "ospbridge/Volksbot-v0",
}


@pytest.fixture(params=SCENARIOS)
def hosted(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A scenario, and the address of a simulator with its world, of NERD's kind."""
    with UdpSimulator(world_of(load(request.param)), port=0, profile=NERD) as simulator:
        yield request.param, str(simulator.address)


def test_check_finds_no_mistake_at_the_interface_of_the_real_robot(hosted: tuple[str, str]) -> None:
    scenario, address = hosted
    result = CliRunner().invoke(main, ["check", scenario, "--simulator", address])
    assert result.exit_code == 0, result.output
    assert "no mistakes" in result.stdout
    assert "not checked" not in result.stderr


def test_whole_episodes_repeat_from_their_seed_bit_for_bit(hosted: tuple[str, str]) -> None:
    scenario, address = hosted
    env = gymnasium.make(SCENARIOS[scenario], simulator=address)
    told = []
    for _ in range(2):
        env.action_space.seed(5)
        seen = [env.reset(seed=5)[0].tolist()]
        ended = False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            assert observation in env.observation_space
            seen.append([*observation.tolist(), float(reward), terminated, truncated])
            ended = terminated or truncated
        told.append(seen)
    env.close()
    assert told[0] == told[1]
    assert len(told[0]) > 5
