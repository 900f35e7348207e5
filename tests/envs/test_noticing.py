"""What users should know of a simulator is a warning, once in each session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.osp import reset
from ospbridge.osp.profile import NERD
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.outside import SELDOM
from tests.raw_world import RawWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


assert ospbridge.__version__
pytestmark = pytest.mark.loopback


def single(address: str) -> Any:
    return gymnasium.make("ospbridge/Agent-v0", simulator=address).unwrapped


def vector(address: str) -> Any:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, simulator=address)


def actions(env: Any) -> Any:
    return np.zeros(env.action_space.shape, np.float32)


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=NERD) as running:
        yield running


BOTH = pytest.mark.parametrize("made", [single, vector])


@BOTH
def test_a_simulator_that_takes_no_seed_is_told_of_with_the_first_reset_alone(
    simulator: UdpSimulator, made: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "SEED", "/No/Seed")
    env = made(str(simulator.address))
    with pytest.warns(UserWarning, match="no variable /No/Seed: seeds have no effect"):
        env.reset(seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(actions(env))
        env.reset(seed=2)
        env.step(actions(env))
        env.close()


@BOTH
def test_sensors_outside_their_ranges_are_told_of_with_the_first_reset_alone(
    made: Callable[[str], Any],
) -> None:
    with UdpSimulator(RawWorld(1, 2), port=0) as running:
        env = made(str(running.address))
        with pytest.warns(
            UserWarning, match=r"'/sensor/\d' of agent 'agent' is 12\d\.\d+, outside its range"
        ) as told:
            env.reset(seed=123)
        assert len(told) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2 * SELDOM):
                env.step(actions(env))
            env.reset(seed=124)
        env.close()


@BOTH
def test_sensors_of_a_server_that_sends_them_raw_may_be_anywhere(made: Callable[[str], Any]) -> None:
    with UdpSimulator(RawWorld(1, 2), port=0, profile=NERD) as running:
        env = made(str(running.address))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env.reset(seed=123)
            env.step(actions(env))
        env.close()
