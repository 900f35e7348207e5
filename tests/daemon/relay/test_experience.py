"""Steps become fragments that fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.daemon.relay.acting import Kind
from ospbridge.daemon.relay.experience import FIRST_ROWS, Experience
from ospbridge.daemon.relay.spaces import (
    SaidSpaces,
    actions_misfit,
    actions_of,
    described,
    other_bounds,
    require_same_actions,
)
from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace, Space
from ospbridge.rllink.checking import Needs, check_fragment
from ospbridge.rllink.pickled_config import FoundConfig
from tests.policy.onnx_models import recorded
from tests.policy.weights import module_weights

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


# --- choices and numbers are told apart, where anything tells them apart -----------------------------------------


CHOICES = DiscreteSpace(4)


def box(*shape: int) -> BoxSpace:
    return BoxSpace(-np.ones(shape, np.float32), np.ones(shape, np.float32))


def test_a_model_of_a_gaussian_is_no_policy_of_choices_unless_it_may_be_a_users_own() -> None:
    kind, model = Kind(box(16), CHOICES), recorded("box")
    with pytest.raises(ConfigurationError, match=r"is one of 4 choices, .* is a box of 2 numbers") as caught:
        require_same_actions(kind, SaidSpaces(), described(model, named=False))
    assert "action space" in caught.value.hint
    require_same_actions(kind, SaidSpaces(), described(model, named=True))
    require_same_actions(Kind(box(16), box(2)), SaidSpaces(), described(model, named=False))


def test_free_deviations_are_no_policy_of_choices_whosever_they_are() -> None:
    weights = module_weights(inputs=5, hiddens=(8,), outputs=2) | {"pi.log_std": np.zeros(2, np.float32)}
    with pytest.raises(ConfigurationError, match="a box of 2 numbers"):
        require_same_actions(Kind(box(5), CHOICES), SaidSpaces(), described(weights, named=True))


def test_what_settings_say_counts_before_what_weights_may_stand_for() -> None:
    weights = described(module_weights(inputs=5, hiddens=(8,), outputs=4), named=False)
    for space in (CHOICES, box(2)):
        assert actions_misfit(actions_of(space), SaidSpaces(), weights) == ""
        assert (
            actions_misfit(actions_of(space), SaidSpaces(action="MultiDiscrete"), weights) == "MultiDiscrete"
        )
        assert actions_misfit(actions_of(space), SaidSpaces(action=actions_of(space)), weights) == ""
    assert actions_misfit(actions_of(box(2)), SaidSpaces(), None) == ""


def bounded(low: float, high: float, size: int = 2) -> BoxSpace:
    return BoxSpace(np.full(size, low, np.float32), np.full(size, high, np.float32))


@pytest.mark.parametrize(
    "theirs, told",
    [
        (bounded(-2.0, 2.0), False),
        (bounded(-3.0, 2.0), True),
        (bounded(-np.inf, np.inf), True),
        # Where a policy acts before it is stretched.
        (bounded(-1.0, 1.0), False),
        (bounded(-3.0, 2.0, size=3), False),
        (CHOICES, False),
        (None, False),
    ],
)
def test_bounds_of_actions_are_compared_as_far_as_they_are_said(theirs: Space | None, told: bool) -> None:
    said = SaidSpaces.of(FoundConfig(action_space=theirs))
    assert bool(other_bounds(Kind(box(3), bounded(-2.0, 2.0)), said)) is told
    assert other_bounds(Kind(box(3), CHOICES), said) == ""
