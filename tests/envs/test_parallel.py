"""The parallel environment: what PettingZoo and its users expect of it, direct and through a hub."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError, SessionClosed
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.world import World
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import hosted

pytest.importorskip("pettingzoo", reason="needs the extra: pip install 'ospbridge[pettingzoo]'")

from ospbridge.envs.parallel import AgentsParallelEnv, parallel_env

pytestmark = pytest.mark.loopback
Joined = Callable[..., Any]


@pytest.fixture(params=["direct", "hub"])
def joined(request: pytest.FixtureRequest, runtime_directory: Path) -> Joined:
    """A simulator of that world, and an environment with all its agents."""

    @contextmanager
    def join(world: World, agents: str = "*") -> Iterator[AgentsParallelEnv]:
        profile = NERD if request.param == "hub" else DOCUMENT
        with UdpSimulator(world, port=0, profile=profile) as simulator:
            if request.param == "direct":
                env = parallel_env(str(simulator.address), agents)
                yield env
                env.close()
                return
            hub = runtime_directory / "hub"
            with hosted(simulator.address, hub):
                env = parallel_env(bridge=f"unix:{hub}", agents=agents)
                yield env
                env.close()

    return join


def zeros(env: AgentsParallelEnv) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.zeros(env.action_space(name).shape or (), np.float32) for name in env.agents}


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
        with pytest.raises(LocalProtocolError, match="call reset first"):
            env.step({})
        env.reset(seed=1)
        good = zeros(env)
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
        env.close()
        with pytest.raises(SessionClosed):
            env.reset()


def test_without_pettingzoo_the_error_says_how_to_get_it() -> None:
    code = (
        "import sys; sys.modules['pettingzoo'] = None\n"
        "from ospbridge.errors import ConfigurationError\n"
        "try: import ospbridge.envs.parallel\n"
        "except ConfigurationError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "pip install 'ospbridge[pettingzoo]'" in done.stdout


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.parametrize("hub", [False, True])
def test_an_action_that_anothers_end_cuts_short_counts_as_one(
    hub: bool, tmp_path: Path, runtime_directory: Path
) -> None:
    scenario = tmp_path / "two.toml"
    scenario.write_text(
        'name = "two"\naction_repeat = 4\n'
        '[[agent]]\nmatch = { name = "agent1" }\n[agent.episode]\nreward = "1"\nterminated = "step > 1"\n'
        '[[agent]]\nmatch = { name = "agent2" }\n[agent.episode]\nreward = "1"\nmax_steps = 3\n',
        encoding="utf-8",
    )
    path = runtime_directory / "hub"
    with ExitStack() as stack:
        simulator = stack.enter_context(UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0))
        where: Any = {"simulator": str(simulator.address), "scenario": str(scenario)}
        if hub:
            stack.enter_context(hosted(simulator.address, path, "--scenario", str(scenario)))
            where = {"bridge": f"unix:{path}"}
        env = parallel_env(**where)
        stack.callback(env.close)
        for _ in range(2):
            env.reset(seed=1)
            told = []
            while env.agents:
                _, rewards, terminated, truncated, _ = env.step(
                    {name: np.zeros(1, np.float32) for name in env.agents}
                )
                told.append((rewards["agent2"], truncated["agent2"]))
                assert terminated.get("agent1", True)
            assert told == [(2.0, False), (4.0, False), (4.0, True)]
