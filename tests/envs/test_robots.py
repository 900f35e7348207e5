"""The scenarios of the A-Series and the Volksbot, played at their stand-ins as at a NERD server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
import pytest
from click.testing import CliRunner

import ospbridge
from ospbridge.cli import main
from ospbridge.osp.profile import NERD
from ospbridge.simulator.hosting import world_of
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.loading import load

assert ospbridge.__version__
pytestmark = pytest.mark.loopback

SCENARIOS = {
    "aseries_stand": "ospbridge/ASeriesStand-v0",
    "aseries_walk": "ospbridge/ASeriesWalk-v0",
    "volksbot": "ospbridge/Volksbot-v0",
}


@contextmanager
def hosted(scenario: str) -> Iterator[str]:
    """The address of a simulator with the scenario's world, of NERD's kind."""
    with UdpSimulator(world_of(load(scenario)), port=0, profile=NERD) as simulator:
        yield str(simulator.address)


@contextmanager
def playing(scenario: str) -> Iterator[gymnasium.Env[Any, Any]]:
    with hosted(scenario) as address:
        env = gymnasium.make(SCENARIOS[scenario], simulator=address)
        try:
            yield env
        finally:
            env.close()


def zeros(env: gymnasium.Env[Any, Any]) -> Any:
    """The first choice, or an action of zeros."""
    return np.zeros(env.action_space.shape or (), env.action_space.dtype)


def upright(env: gymnasium.Env[Any, Any], torque: float = 1.0) -> Any:
    """The action that holds all angles at 0 with that torque."""
    space = env.action_space
    assert isinstance(space, gymnasium.spaces.Box)
    return np.where(space.low == 0.0, np.float32(torque), np.float32(0.0))


def episode(env: gymnasium.Env[Any, Any], act: Any, seed: int) -> tuple[float, int, bool]:
    """Return, length, and whether it was terminated."""
    env.reset(seed=seed)
    total, steps = 0.0, 0
    while True:
        _, reward, terminated, truncated, info = env.step(act(steps) if callable(act) else act)
        assert not info["reason"]
        total, steps = total + float(reward), steps + 1
        if terminated or truncated:
            return total, steps, terminated


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_check_finds_no_mistake_at_the_interface_of_the_real_robot(scenario: str) -> None:
    with hosted(scenario) as address:
        result = CliRunner().invoke(main, ["check", scenario, "--simulator", address])
    assert result.exit_code == 0, result.output
    assert "no mistakes" in result.stdout
    assert "not checked" not in result.stderr


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_whole_episodes_repeat_from_their_seed_bit_for_bit(scenario: str) -> None:
    with playing(scenario) as env:
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
    assert told[0] == told[1]
    assert len(told[0]) > 5


def test_standing_at_full_torque_lasts_and_costs_nearly_all_that_it_earns() -> None:
    with playing("aseries_stand") as env:
        for seed in (1, 2, 3):
            total, steps, fell = episode(env, upright(env), seed)
            assert (round(total), steps, fell) == (100, 200, False)
        more, steps, _ = episode(env, upright(env, 0.7), 1)
        assert steps == 200
        assert more > 500.0
        least, steps, fell = episode(env, zeros(env), 1)
        assert fell
        assert steps < 30
        assert least < more / 3


def test_each_episode_of_standing_carries_another_weight() -> None:
    with playing("aseries_stand") as env:
        lengths = {episode(env, zeros(env), seed)[1] for seed in range(1, 6)}
    assert len(lengths) > 1


def test_who_stands_still_walks_nowhere() -> None:
    with playing("aseries_walk") as env:
        total, _, fell = episode(env, zeros(env), 1)
    assert not fell
    assert total == pytest.approx(0.0, abs=1.0)


def test_the_volksbot_earns_by_driving_and_stops_at_no_wall() -> None:
    with playing("volksbot") as env:
        assert episode(env, zeros(env), 1) == (0.0, 150, False)
        ahead, steps, ended = episode(env, np.ones(2, np.float32), 1)
        assert ended
        assert 300.0 < ahead <= 10.0 * steps
        turning = episode(env, lambda step: np.full(2, 1.0 if step % 60 < 30 else -1.0, np.float32), 1)
        assert turning[2] is False
        assert turning[0] > 2 * ahead
