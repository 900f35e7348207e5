"""Drawing actions: how often, with which log-probability, and alike for rows and batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DiscreteSpace
from ospbridge.policy.distributions import (
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
    MultiDiscreteSpace,
    distribution,
)
from tests.policy.weights import box

if TYPE_CHECKING:
    from numpy.typing import NDArray

MANY = 5_000
ALL: list[Distribution] = [Categorical(4), Categorical(300), MultiCategorical((3, 2, 4)), DiagGaussian(3)]


def inputs_for(kind: Distribution, rows: int, seed: int = 5) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, kind.inputs)).astype(np.float32)


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("kind", ALL, ids=lambda kind: f"{type(kind).__name__} {kind.inputs}")
def test_a_batch_draws_what_its_rows_draw_one_after_the_other(kind: Distribution, *, greedy: bool) -> None:
    inputs = inputs_for(kind, 50)
    batch, row = (None, None) if greedy else (np.random.default_rng(8), np.random.default_rng(8))
    actions, logp = kind.draw(inputs, batch)
    drawn = [kind.draw_row(each, row) for each in inputs]
    assert np.array_equal(actions, np.stack([action for action, _ in drawn]))
    assert np.abs(logp - [each for _, each in drawn]).max() < 1e-5


@pytest.mark.parametrize("size", [3, 300])
def test_choices_come_as_often_as_their_probabilities_say(size: int) -> None:
    logits = np.zeros((1, size), np.float32)
    logits[0, :3] = np.log([0.1, 0.6, 0.3]) + 100.0
    actions, logp = Categorical(size).draw(logits.repeat(MANY, 0), np.random.default_rng(8))
    often = np.bincount(actions, minlength=size) / MANY
    assert often[:3] == pytest.approx([0.1, 0.6, 0.3], abs=0.02)
    assert np.exp(logp[:100]) == pytest.approx(np.array([0.1, 0.6, 0.3])[actions[:100]], rel=1e-4)


def test_a_choice_of_no_probability_is_never_drawn() -> None:
    logits = np.array([[-1e4, 0.0, -np.inf, 1.0, -1e4]], np.float32)
    for rows in (1, 100):
        for place, choice in ((0.0, 1), (1.0 - 2.0**-53, 3)):
            actions, logp = Categorical(5).draw_at(logits.repeat(rows, 0), np.full(rows, place))
            assert (actions == choice).all()
            assert np.isfinite(logp).all()


def test_numbers_have_their_means_and_deviations_and_are_independent() -> None:
    inputs = np.array([[1.0, -2.0, math.log(0.5), math.log(3.0)]], np.float32)
    actions, logp = DiagGaussian(2).draw(inputs.repeat(MANY, 0), np.random.default_rng(8))
    assert actions.mean(0) == pytest.approx([1.0, -2.0], abs=0.15)
    assert actions.std(0) == pytest.approx([0.5, 3.0], rel=0.05)
    assert np.abs(np.corrcoef(actions.T) - np.eye(2)).max() < 0.05
    away = (actions - [1.0, -2.0]) / [0.5, 3.0]
    expected = (-0.5 * away**2 - np.log([0.5, 3.0]) - 0.5 * math.log(2 * math.pi)).sum(1)
    assert logp == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "space", [box(0), DiscreteSpace(0), MultiDiscreteSpace(()), MultiDiscreteSpace((2, 0))]
)
def test_a_space_without_anything_to_choose_is_refused(space: Any) -> None:
    with pytest.raises(ConfigurationError, match="the action space has"):
        distribution(space)
