"""Choices and numbers are told apart, where anything tells them apart."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.daemon.relay.acting import Kind
from ospbridge.daemon.relay.spaces import (
    SaidSpaces,
    actions_misfit,
    actions_of,
    described,
    other_bounds,
    require_same_actions,
)
from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace, Space
from ospbridge.rllink.pickled_config import FoundConfig, OtherSpace
from tests.policy.onnx_models import recorded
from tests.policy.weights import module_weights

CHOICES = DiscreteSpace(4)


def box(*shape: int) -> BoxSpace:
    return BoxSpace(-np.ones(shape, np.float32), np.ones(shape, np.float32))


@pytest.mark.parametrize(
    "space, said",
    [
        (CHOICES, "one of 4 choices"),
        (box(1), "a box of 1 number"),
        (box(2, 2), "a box of 4 numbers"),
        (OtherSpace("MultiDiscrete"), "MultiDiscrete"),
        (None, None),
    ],
)
def test_settings_are_compared_in_words(space: Space | OtherSpace | None, said: str | None) -> None:
    assert SaidSpaces.of(FoundConfig(action_space=space)).action == said


def test_observations_are_compared_by_their_shape() -> None:
    assert SaidSpaces.of(FoundConfig(observation_space=box(2, 3))).observation == (2, 3)
    assert SaidSpaces.of(FoundConfig(observation_space=CHOICES)).observation == "one of 4 choices"


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


def test_a_server_with_other_bounds_makes_the_same_policy() -> None:
    one, other = (SaidSpaces.of(FoundConfig(action_space=bounded(-1.0, high))) for high in (1.0, 2.0))
    assert one == other
