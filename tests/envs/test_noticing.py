"""What users should know of a simulator is a warning, once in each session."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.envs import sharing
from ospbridge.osp.client import seeding
from ospbridge.osp.client.notices import Anomaly, Notice, WorldReset
from ospbridge.osp.profile import NERD
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.outside import SELDOM
from tests.raw_world import RawWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.session.conversation import Conversation

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


def single(address: str) -> Any:
    return gymnasium.make("ospbridge/Agent-v0", simulator=address).unwrapped


def vector(address: str) -> Any:
    return gymnasium.make_vec("ospbridge/Agent-v0", num_envs=1, simulator=address)


def actions(env: Any) -> Any:
    return np.zeros(env.action_space.shape, np.float32)


def conversation() -> Conversation:
    """Of the only environment."""
    (shared,) = sharing._shared.values()
    return shared.session.conversation


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=NERD) as running:
        yield running


BOTH = pytest.mark.parametrize("made", [single, vector])


@BOTH
def test_a_simulator_that_takes_no_seed_is_told_of_with_the_first_reset_alone(
    simulator: UdpSimulator, made: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "SEED", "/No/Seed")
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
def test_so_is_what_is_learned_in_an_episode_whose_anomalies_are_not(
    simulator: UdpSimulator, made: Callable[[str], Any]
) -> None:
    env = made(str(simulator.address))
    env.reset(seed=1)
    notices = conversation().machine.notices
    notices += [Anomaly("it came late"), Notice("its clock is uneven, by 5 %")]
    with pytest.warns(UserWarning, match="its clock is uneven, by 5 %") as caught:
        *_, truncated, _ = env.step(actions(env))
    assert len(caught) == 1
    assert not np.any(truncated)
    notices += [WorldReset("somebody reset it"), Notice("it cuts")]
    with pytest.warns(UserWarning, match="it cuts"):
        *_, truncated, _ = env.step(actions(env))
    assert np.all(truncated)
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
