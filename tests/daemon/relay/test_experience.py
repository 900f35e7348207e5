"""Steps become fragments that fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.daemon.relay.experience import FIRST_ROWS, Experience
from ospbridge.errors import LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace, Space
from ospbridge.rllink.checking import Needs, check_fragment

BOX = BoxSpace(np.full(2, -1, np.float32), np.full(2, 1, np.float32))
CHOICE = DiscreteSpace(3)


def observed(at: int) -> Any:
    return np.array([at, -at, 0.5], np.float32)


def lived(space: Space = CHOICE) -> Experience:
    return Experience(3, space, 4, agent="cart", simulator="sim:1")


def step(experience: Experience, at: int, *, terminated: bool = False, truncated: bool = False) -> None:
    action = at % 3 if experience._action_shape == () else np.array([at, 0.25], np.float32)
    experience.add(
        action,
        -0.5 * at,
        np.full(4, at, np.float32),
        observation=observed(at + 1),
        reward=float(at),
        terminated=terminated,
        truncated=truncated,
    )


@pytest.mark.parametrize("space", [CHOICE, BOX])
def test_an_episode_leaves_as_it_was_lived(space: Space) -> None:
    experience = lived(space)
    experience.begin(observed(0), weights_seq_no=7)
    for at in range(5):
        step(experience, at, terminated=at == 4)
    fragment = experience.take()
    assert fragment is not None
    check_fragment(fragment, Needs(action=space, observation_size=3, dist_inputs_size=4))
    assert fragment.observations[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert fragment.rewards.tolist() == [0, 1, 2, 3, 4]
    assert fragment.action_logp is not None
    assert fragment.action_logp.tolist() == [0, -0.5, -1, -1.5, -2]
    assert (fragment.terminated, fragment.truncated, fragment.t_started) == (True, False, 0)
    assert fragment.weights_seq_no == 7
    assert (fragment.agent, fragment.simulator) == ("cart", "sim:1")
    assert fragment.choices == (CHOICE.n if space is CHOICE else None)
    assert not experience.under_way


def test_an_episode_that_is_taken_under_way_goes_on_where_it_was() -> None:
    experience = lived()
    experience.begin(observed(0), weights_seq_no=1)
    step(experience, 0)
    step(experience, 1)
    first = experience.take(weights_seq_no=2)
    step(experience, 2, truncated=True)
    second = experience.take()
    assert first is not None
    assert second is not None
    assert first.id == second.id
    assert (first.done, first.t, second.t_started, second.t) == (False, 2, 2, 3)
    assert first.observations[-1].tolist() == second.observations[0].tolist()
    assert (first.weights_seq_no, second.weights_seq_no) == (1, 2)
    assert (second.terminated, second.truncated) == (False, True)


def test_nothing_lived_is_nothing_to_take() -> None:
    experience = lived()
    assert experience.take() is None
    experience.begin(observed(0), weights_seq_no=1)
    assert experience.take(weights_seq_no=4) is None
    step(experience, 0)
    fragment = experience.take()
    assert fragment is not None
    assert fragment.weights_seq_no == 4


def test_a_cut_episode_is_truncated_at_its_last_step() -> None:
    experience = lived()
    experience.begin(observed(0), weights_seq_no=1)
    step(experience, 0)
    experience.cut()
    assert not experience.under_way
    fragment = experience.take()
    assert fragment is not None
    assert (fragment.steps, fragment.terminated, fragment.truncated) == (1, False, True)


def test_a_long_episode_is_kept_whole() -> None:
    experience = lived(BOX)
    experience.begin(observed(0), weights_seq_no=1)
    steps = 3 * FIRST_ROWS + 1
    for at in range(steps):
        step(experience, at)
    fragment = experience.take()
    assert fragment is not None
    assert fragment.observations[:, 0].tolist() == list(range(steps + 1))
    assert fragment.actions[:, 0].tolist() == list(range(steps))


def test_a_reward_that_float32_cannot_hold_is_found_before_it_is_sent_and_warned_of_by_nobody() -> None:
    experience = lived()
    experience.begin(observed(0), weights_seq_no=7)
    experience.add(
        0,
        -0.5,
        np.zeros(4, np.float32),
        observation=observed(1),
        reward=1e300,
        terminated=True,
        truncated=False,
    )
    fragment = experience.take()
    assert fragment is not None
    with pytest.raises(LocalProtocolError, match="row 0 of rewards: inf is not finite"):
        check_fragment(fragment, Needs())
