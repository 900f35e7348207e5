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
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.world import World
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load
from tests.envs.daemons import hosted

pytestmark = pytest.mark.loopback


IDS = sorted(spec.id for spec in gymnasium.registry.values() if spec.namespace == "ospbridge")
CYCLES = 420  # some more than the longest episode of two agents
NEEDS_MUJOCO = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mujoco", "imageio")),
    reason="mujoco is not installed: pip install 'gymnasium[mujoco]'",
)


@dataclass(frozen=True)
class Served:
    """A simulator with the world of an id, and how environments come to its agents."""

    env_id: str
    agents: list[str]
    joins: dict[str, Any]

    @property
    def scenario(self) -> str | None:
        return scenario_of(self.env_id)

    @property
    def one(self) -> str | None:
        """Which agent, where there are several."""
        return self.agents[-1] if len(self.agents) > 1 else None


def scenario_of(env_id: str) -> str | None:
    scenario: str | None = gymnasium.spec(env_id).kwargs.get("scenario")
    return scenario


def world(env_id: str) -> World:
    """The world of the id's scenario, and one of two agents where there is none."""
    scenario = scenario_of(env_id)
    return ArenaWorld(2) if scenario is None else world_of(load(scenario))


CASES = [
    pytest.param(
        (env_id, profile, way),
        id=f"{env_id.removeprefix('ospbridge/')}-{profile.name}-{way}",
        marks=NEEDS_MUJOCO if scenario_of(env_id) == "half_cheetah" else (),
    )
    for env_id, (profile, way) in itertools.product(IDS, ((DOCUMENT, "direct"), (NERD, "hub")))
]


@pytest.fixture(scope="module", params=CASES)
def served(request: pytest.FixtureRequest, clean_environment: Path) -> Iterator[Served]:
    """One simulator, and where it is wanted one daemon, for all tests of an id, a profile and a way."""
    env_id: str
    profile: Profile
    env_id, profile, way = request.param
    directory = Path(tempfile.mkdtemp(dir=clean_environment, prefix=""))
    with contextlib.ExitStack() as stack:
        # MuJoCo writes a log into the working directory.
        with contextlib.chdir(directory):
            played = world(env_id)
        agents = [agent.name for agent in played.agents]
        simulator = stack.enter_context(UdpSimulator(played, port=0, profile=profile))
        if way == "direct":
            yield Served(env_id, agents, {"simulator": str(simulator.address)})
            return
        scenario = scenario_of(env_id)
        plays = () if scenario is None else ("--scenario", scenario)
        stack.enter_context(hosted(simulator.address, directory / "hub", *plays))
        yield Served(env_id, agents, {"bridge": f"unix:{directory / 'hub'}"})


def test_the_checker_of_gymnasium_is_content(served: Served) -> None:
    env = gymnasium.make(served.env_id, agent=served.one, **served.joins)
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

    env = parallel_env(**served.joins, scenario=served.scenario)
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


SCENARIOS = {
    "aseries_stand": "ospbridge/ASeriesStand-v0",
    "aseries_walk": "ospbridge/ASeriesWalk-v0",
    "volksbot": "ospbridge/Volksbot-v0",
}


@pytest.fixture(params=SCENARIOS)
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
