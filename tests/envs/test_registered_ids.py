"""Every registered id: what gymnasium and PettingZoo ask of an environment, direct and through a daemon."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner
from gymnasium.utils.env_checker import check_env

from ospbridge.cli import main
from ospbridge.osp.profile import NERD, PROFILES
from ospbridge.osp.world import World
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from tests.envs.daemons import reached

pytestmark = pytest.mark.loopback


SCENARIOS = {
    spec.id: spec.kwargs.get("scenario")
    for spec in gymnasium.registry.values()
    if spec.namespace == "ospbridge"
}
CYCLES = 420  # some more than the longest episode of two agents
NO_MUJOCO = any(importlib.util.find_spec(name) is None for name in ("mujoco", "imageio"))


@dataclass(frozen=True)
class Served:
    """A simulator with the world of an id, or one of two agents, and how environments come to them."""

    env_id: str
    agents: list[str]
    joins: dict[str, Any]


@pytest.fixture(
    scope="module", params=itertools.product(sorted(SCENARIOS), ["document-direct", "nerd-hub"]), ids="-".join
)
def served(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[Served]:
    """One simulator, and where it is wanted one daemon, for all tests of an id, a profile and a way."""
    env_id, (profile, way) = request.param[0], request.param[1].split("-")
    scenario = SCENARIOS[env_id]
    if scenario == "half_cheetah" and NO_MUJOCO:
        pytest.skip("mujoco is not installed: pip install 'gymnasium[mujoco]'")
    directory = Path(tempfile.mkdtemp(dir=clean_environment, prefix=""))
    # MuJoCo writes a log into the working directory.
    with contextlib.chdir(directory):
        played: World = ArenaWorld(2) if scenario is None else world_of(load(scenario))
    plays = () if scenario is None else ("--scenario", scenario)
    with (
        UdpSimulator(played, port=0, profile=PROFILES[profile]) as simulator,
        reached(way, simulator.address, directory / "hub", *plays) as joins,
    ):
        yield Served(env_id, [agent.name for agent in played.agents], joins)


def test_the_checker_of_gymnasium_is_content(served: Served) -> None:
    env = gymnasium.make(served.env_id, agent=served.agents[-1], **served.joins)
    with warnings.catch_warnings():
        # Raw sensors are unbounded, and motors need not be symmetric: the checker frowns at both.
        warnings.filterwarnings("ignore", message=".*infinity.*")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized.*")
        check_env(env.unwrapped)
    env.close()


def test_the_checker_of_pettingzoo_is_content(served: Served) -> None:
    pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")
    from pettingzoo.test import parallel_api_test

    from ospbridge.envs.parallel import parallel_env

    env = parallel_env(**served.joins, scenario=SCENARIOS[served.env_id])
    assert env.possible_agents == served.agents
    parallel_api_test(env, num_cycles=CYCLES)
    env.close()


def test_as_a_vector_it_keeps_to_its_spaces_and_repeats_itself_from_a_seed(served: Served) -> None:
    envs = gymnasium.make_vec(
        served.env_id,
        num_envs=len(served.agents),
        vectorization_mode="vector_entry_point",
        agents=served.agents,
        **served.joins,
    )
    told = []
    for _ in range(2):
        envs.action_space.seed(1)
        observations = [envs.reset(seed=1)[0]]
        for _ in range(20):
            seen, rewards, terminations, truncations, _ = envs.step(envs.action_space.sample())
            assert rewards.shape == terminations.shape == truncations.shape == (envs.num_envs,)
            observations.append(seen)
        assert all(seen in envs.observation_space for seen in observations)
        told.append(observations)
    envs.close()
    if not gymnasium.spec(served.env_id).nondeterministic:
        np.testing.assert_array_equal(told[0], told[1])


# --- the robots of a NERD server, played at their stand-ins --------------------------------------------------------


ROBOTS = {
    "aseries_stand": "ospbridge/ASeriesStand-v0",
    "aseries_walk": "ospbridge/ASeriesWalk-v0",
    "volksbot": "ospbridge/Volksbot-v0",
}


@pytest.fixture(params=ROBOTS)
def robot(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """A scenario, and the address of a simulator with its world, of NERD's kind."""
    with UdpSimulator(world_of(load(request.param)), port=0, profile=NERD) as simulator:
        yield request.param, str(simulator.address)


def test_check_finds_no_mistake_at_the_interface_of_the_real_robot(robot: tuple[str, str]) -> None:
    scenario, address = robot
    result = CliRunner().invoke(main, ["check", scenario, "--simulator", address])
    assert result.exit_code == 0, result.output
    assert "no mistakes" in result.stdout
    assert "not checked" not in result.stderr


def test_whole_episodes_repeat_from_their_seed_bit_for_bit(robot: tuple[str, str]) -> None:
    scenario, address = robot
    env = gymnasium.make(ROBOTS[scenario], simulator=address)
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
