"""Environments that record: the files hold what the caller saw, and with what to make the environment again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs.agent_env import AgentEnv
from ospbridge.envs.observers import spec_of_agent
from ospbridge.errors import LocalProtocolError
from ospbridge.osp.profile import Profile
from ospbridge.record.export import export_minari
from ospbridge.record.reading import read_recording
from ospbridge.simulator.gym_world import GymWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.envs.daemons import reached

pytestmark = pytest.mark.loopback


def play_and_compare(env: gymnasium.Env[Any, Any], directory: Path, episodes: int) -> None:
    actions = np.random.default_rng(1)
    for number in range(episodes):
        observation, info = env.reset(seed=number + 1)
        seen, given, rewards, infos = [observation], [], [], [list(info["infos"].values())]
        ended = False
        while not ended:
            action = np.array([actions.integers(2)], np.float32)
            observation, reward, terminated, truncated, info = env.step(action)
            seen.append(observation)
            given.append(action)
            rewards.append(reward)
            infos.append(list(info["infos"].values()))
            ended = terminated or truncated
        # On disk before the next one begins.
        *_, last = read_recording(directory)
        assert (last.seed, last.agent, last.how) == (number + 1, "cart", "terminated")
        np.testing.assert_array_equal(last.observations, seen)
        np.testing.assert_array_equal(last.actions, given)
        np.testing.assert_array_equal(last.rewards, rewards)
        np.testing.assert_array_equal(last.infos, infos)
    assert len(list(read_recording(directory))) == episodes


@pytest.mark.parametrize("way", ["direct", "hub"])
def test_an_environment_records_what_its_caller_saw(
    way: str, profile: Profile, tmp_path: Path, runtime_directory: Path
) -> None:
    with (
        UdpSimulator(GymWorld(["CartPole-v1"]), port=0, profile=profile) as simulator,
        reached(way, simulator.address, runtime_directory / "hub") as where,
    ):
        env = gymnasium.make("ospbridge/Agent-v0", record=str(tmp_path / "out"), **where)
        play_and_compare(env, tmp_path / "out", 3)
        env.close()
        (first, *_) = read_recording(tmp_path / "out")
        assert first.simulator in where.values()


def test_a_lost_session_is_written_with_its_reason(tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(1, 2), port=0) as simulator:
        env = gymnasium.make("ospbridge/Agent-v0", simulator=str(simulator.address), record=str(tmp_path))
        env.reset(seed=1)
        env.step(np.zeros(1, np.float32))
        with pytest.raises(LocalProtocolError):
            env.unwrapped.step(np.full(1, np.nan, np.float32))
    env.step(np.zeros(1, np.float32))
    (episode,) = read_recording(tmp_path)
    assert (len(episode), episode.how) == (2, "truncated")
    assert "connection refused" in episode.reason
    env.close()


# --- what recordings tell of their environments --------------------------------------------------------------------


def recorded(directory: Path) -> list[dict[str, Any]]:
    """The keywords that each episode's environment was made with."""
    return [json.loads(episode.env_spec)["kwargs"] for episode in read_recording(directory)]


# --- what recordings keep ---------------------------------------------------------------------------------------------


@pytest.mark.loopback
def test_an_episode_tells_all_that_its_environment_was_made_with_also_where_that_is_collected(
    tmp_path: Path,
) -> None:
    given: dict[str, Any] = {"agent": "agent", "step_timeout": 7.5, "record": tmp_path, "not_finite": "zero"}
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        given["simulator"] = str(simulator.address)
        env = gymnasium.make("ospbridge/Agent-v0", **given)
        env.reset()
        env.step(np.zeros(1, np.float32))
        # As where nobody closes it: nothing but the environment itself may keep it alive.
        del env
        (kwargs,) = recorded(tmp_path)
    assert kwargs == {**given, "record": str(tmp_path)}


@pytest.mark.loopback
def test_agents_of_a_vector_are_told_as_single_environments_have_them(tmp_path: Path) -> None:
    worlds = [GymWorld(["CartPole-v1"] * copies) for copies in (2, 1)]
    with UdpSimulator(worlds[0], port=0) as first, UdpSimulator(worlds[1], port=0) as second:
        addresses = [str(first.address), str(second.address)]
        envs = gymnasium.make_vec(
            "ospbridge/CartPole-v0", num_envs=3, simulator=addresses, agents="*", wait=1.5, record=tmp_path
        )
        envs.reset()
        envs.step(np.zeros(3, np.int64))
        envs.close()
    episodes = list(read_recording(tmp_path))
    assert {episode.simulator for episode in episodes} == set(addresses)
    assert len({(episode.simulator, episode.agent) for episode in episodes}) == 3
    for episode, kwargs in zip(episodes, recorded(tmp_path), strict=True):
        own = {"simulator": episode.simulator, "agent": episode.agent}
        assert kwargs == {**own, "scenario": "cartpole", "wait": 1.5, "record": str(tmp_path)}


class Made:
    """An environment that gymnasium made, but for the environment."""

    def __init__(self, **kwargs: Any) -> None:
        self.spec: Any = gymnasium.envs.registration.EnvSpec(
            "ospbridge/Agent-v0", "ospbridge.envs.agent_env:AgentEnv", kwargs=kwargs
        )


@pytest.mark.parametrize(
    "launch", [["Sim", "-p", "{port}"], "Sim -p {port}", {"command": ["Sim"], "cores": 1}, True]
)
def test_keywords_are_kept_whatever_they_are_called_as_far_as_json_holds_them(launch: Any) -> None:
    made: Any = Made(launch=launch, scenario=Path("mine.toml"), callback=print, agent=None)
    told = json.loads(spec_of_agent(made)("127.0.0.1:1", "cart"))
    assert told["kwargs"] == {"launch": launch, "scenario": "mine.toml", "agent": None}
    several: Any = Made(launch=launch, num_envs=2, agents="*", copy=False)
    told = json.loads(spec_of_agent(several)("127.0.0.1:1", "cart"))
    # Where it is launched it has no address of its own.
    assert told["kwargs"] == {"launch": launch, "agent": "cart"}


def test_an_environment_that_gymnasium_did_not_make_tells_nothing() -> None:
    made: Any = Made()
    told = spec_of_agent(made)
    made.spec.entry_point = AgentEnv
    assert told("127.0.0.1:1", "cart") == ""
    made.spec = None
    assert told("127.0.0.1:1", "cart") == ""
    del made
    assert told("127.0.0.1:1", "cart") == ""


# --- datasets ---------------------------------------------------------------------------------------------------------


@pytest.mark.loopback
def test_a_dataset_makes_the_environment_of_its_recording_again(tmp_path: Path, datasets: Path) -> None:
    import minari

    scenario = tmp_path / "mine.toml"
    scenario.write_text(
        'name = "mine"\n[[agent]]\n[agent.observe]\nhistory = 2\n'
        "[agent.action]\nchoices = [[-1], [1]]\n[agent.episode]\nreward = 2\nmax_steps = 3\n"
    )
    record, trace = tmp_path / "episodes", tmp_path / "t.jsonl"
    with UdpSimulator(GymWorld(["CartPole-v1"] * 2), port=0) as simulator:
        agent = simulator.machine.simulation.world.agents[1].name
        env = gymnasium.make(
            "ospbridge/Agent-v0",
            simulator=str(simulator.address),
            agent=agent,
            scenario=str(scenario),
            record=record,
            trace=trace,
        )
        first, _ = env.reset(seed=3)
        second = env.step(1)[0]
        spaces = env.observation_space, env.action_space
        env.close()
        traced = trace.read_bytes()
        said: list[str] = []
        episodes, steps, _ = export_minari(record, "mine-v0", say=said.append)
        assert (episodes, steps, said) == (1, 1, [])
        dataset = minari.load_dataset("mine-v0")
        again = dataset.recover_environment()
        assert (again.observation_space, again.action_space) == spaces
        assert (dataset.observation_space, dataset.action_space) == spaces
        np.testing.assert_array_equal(again.reset(seed=3)[0], first)
        observation, reward, _, _, _ = again.step(1)
        np.testing.assert_array_equal(observation, second)
        assert reward == 2.0
        assert again.unwrapped.interface.name == agent
        again.close()
    # It writes no files over those of the recording.
    assert len(list(read_recording(record))) == 1
    assert trace.read_bytes() == traced


@pytest.mark.loopback
def test_a_dataset_is_made_while_no_simulator_is_there(tmp_path: Path, datasets: Path) -> None:
    import minari

    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator:
        address = str(simulator.address)
        env = gymnasium.make("ospbridge/Agent-v0", simulator=address, record=tmp_path / "r")
        env.reset()
        env.step(np.zeros(1, np.float32))
        env.close()
    said: list[str] = []
    export_minari(tmp_path / "r", "gone-v0", say=said.append)
    assert said == []
    spec = minari.load_dataset("gone-v0").env_spec
    assert spec.kwargs == {"simulator": address}


def test_a_recording_of_an_earlier_release_has_no_spec_which_is_said_once(
    tmp_path: Path, datasets: Path
) -> None:
    import minari

    samples = Path(__file__).parent / "samples"
    for number in range(2):
        (tmp_path / f"{number}.npz").write_bytes((samples / "recording-1-discrete.npz").read_bytes())
    assert {episode.env_spec for episode in read_recording(tmp_path)} == {""}
    said: list[str] = []
    export_minari(tmp_path, "old-v0", say=said.append)
    (text,) = said
    assert "agent 'cart' does not tell what its environment was made with" in text
    dataset = minari.load_dataset("old-v0")
    assert (dataset.total_episodes, dataset.env_spec) == (2, None)
