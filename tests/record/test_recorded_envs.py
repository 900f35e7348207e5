"""Environments that record: the files hold what the caller saw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.osp.profile import Profile
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
