"""The parallel environment: what PettingZoo and its users expect of it, direct and through a hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.world import World
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached
from tests.envs.kinds import rest, step

pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")

from ospbridge.envs.parallel import AgentsParallelEnv, parallel_env

pytestmark = pytest.mark.loopback
Joined = Callable[..., Any]


@pytest.fixture(params=["direct", "hub"])
def joined(request: pytest.FixtureRequest, runtime_directory: Path) -> Joined:
    """A simulator of that world, and an environment with all its agents."""

    @contextmanager
    def join(world: World) -> Iterator[AgentsParallelEnv]:
        profile = NERD if request.param == "hub" else DOCUMENT
        with (
            UdpSimulator(world, port=0, profile=profile) as simulator,
            reached(request.param, simulator.address, runtime_directory / "hub") as where,
            closing(parallel_env(**where)) as env,
        ):
            yield env

    return join


# --- PettingZoo ------------------------------------------------------------------------------------------------------


def test_each_agent_is_the_local_environment_of_its_seed_until_its_episode_ends(joined: Joined) -> None:
    with joined(GymWorld(["CartPole-v1"] * 3)) as env:
        assert env.possible_agents == ["cart1", "cart2", "cart3"]
        for seed in (1, 17):
            observations, infos = env.reset(seed=seed)
            local = {name: gymnasium.make("CartPole-v1") for name in env.agents}
            for number, name in enumerate(env.agents):
                assert infos[name]["osp_seed"] == seed
                first, _ = local[name].reset(seed=seed + number)
                np.testing.assert_array_equal(observations[name], first.astype(np.float32))
            choices = np.random.default_rng(seed)
            left = []
            while env.agents:
                played = {name: int(choices.integers(2)) for name in env.agents}
                sent = {name: np.array([choice], np.float32) for name, choice in played.items()}
                found = env.step(sent)
                assert all(set(part) == set(played) for part in found)
                for name, choice in played.items():
                    wanted, reward, *flags, _ = local[name].step(choice)
                    np.testing.assert_array_equal(found[0][name], wanted.astype(np.float32))
                    assert [found[1][name], found[2][name], found[3][name]] == [reward, *flags]
                    if any(flags):
                        left.append(name)
                        assert name not in env.agents
            assert sorted(left) == env.possible_agents
            assert env.possible_agents == ["cart1", "cart2", "cart3"]


# --- bad input -------------------------------------------------------------------------------------------------------


def test_wrong_actions_are_told_and_the_episodes_go_on(joined: Joined) -> None:
    with joined(SyntheticWorld(2, 3, agents=2)) as env:
        env.reset(seed=1)
        good = rest(env)
        with pytest.raises(LocalProtocolError, match=r"missing \['agent2'\]"):
            env.step({"agent1": good["agent1"]})
        with pytest.raises(LocalProtocolError, match=r"not playing \['agent3'\]"):
            env.step({**good, "agent3": good["agent1"]})
        with pytest.raises(LocalProtocolError, match="actions are a dict by agent, got a list"):
            env.step(list(good.values()))
        with pytest.raises(LocalProtocolError, match="agent2"):
            env.step({**good, "agent2": np.zeros(3, np.float32)})
        with pytest.raises(LocalProtocolError, match="NaN"):
            env.step({**good, "agent2": np.array([0, np.nan], np.float32)})
        with pytest.raises(LocalProtocolError, match="cannot be read as numbers"):
            env.step({**good, "agent2": [[0.0], [0.0, 1.0]]})
        env.step(good)


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["direct", "hub"])
def test_an_action_that_anothers_end_cuts_short_counts_as_one(
    way: str, tmp_path: Path, runtime_directory: Path
) -> None:
    scenario = tmp_path / "two.toml"
    scenario.write_text(
        'name = "two"\naction_repeat = 4\n'
        '[[agent]]\nmatch = { name = "agent1" }\n[agent.episode]\nreward = "1"\nterminated = "step > 1"\n'
        '[[agent]]\nmatch = { name = "agent2" }\n[agent.episode]\nreward = "1"\nmax_steps = 3\n',
        encoding="utf-8",
    )
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0) as simulator,
        reached(way, simulator.address, runtime_directory / "hub", "--scenario", str(scenario)) as where,
        closing(parallel_env(**where, scenario=str(scenario))) as env,
    ):
        for _ in range(2):
            env.reset(seed=1)
            told = []
            while env.agents:
                _, rewards, terminated, truncated, _ = step(env)
                told.append((rewards["agent2"], truncated["agent2"]))
                assert terminated.get("agent1", True)
            assert told == [(2.0, False), (4.0, False), (4.0, True)]
