"""A policy at work: what is decided and drawn, what goes to the simulator, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.policy.acting import Policy
from ospbridge.policy.distributions import (
    Categorical,
    DiagGaussian,
    Distribution,
    MultiCategorical,
    MultiDiscreteSpace,
    distribution,
)
from tests.policy.weights import SHARED, box, module_weights

OBSERVATIONS = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float32)


def acts(outputs: int, space: Any, **how: Any) -> Policy:
    return Policy(module_weights(outputs=outputs), box(4), space, seed=11, **how)


@pytest.mark.parametrize("space, outputs", [(DiscreteSpace(4), 4), (box(2, -3, 5), 4)])
def test_the_same_seed_decides_alike_for_rows_and_batches(space: Any, outputs: int) -> None:
    batch, rows = acts(outputs, space).act(OBSERVATIONS), acts(outputs, space)
    singly = [rows.act(row) for row in OBSERVATIONS]
    assert np.abs(batch.action - np.stack([each.action for each in singly])).max() < 1e-4
    assert np.abs(batch.logp - [each.logp for each in singly]).max() < 1e-3
    assert np.abs(batch.sent_action - np.stack([each.sent_action for each in singly])).max() < 1e-4


# --- what goes to the simulator ---------------------------------------------------------------------------------------


def test_actions_are_stretched_from_one_to_the_space_and_limited_to_it() -> None:
    space = BoxSpace(np.array([-2.0, 10.0], np.float32), np.array([2.0, 30.0], np.float32))
    policy = acts(4, space)
    many = [policy.act(row) for row in OBSERVATIONS.repeat(20, 0)]
    actions = np.stack([each.action for each in many])
    sent = np.stack([each.sent_action for each in many])
    assert np.abs(actions).max() > 1.0
    assert np.abs(sent - (np.clip(actions, -1, 1) * [2.0, 10.0] + [0.0, 20.0])).max() < 1e-5


@pytest.mark.parametrize("clip", [False, True])
def test_actions_of_a_space_with_an_open_end_are_sent_as_they_are(clip: bool) -> None:
    space = BoxSpace(np.array([-1e-3, 0.0], np.float32), np.array([1e-3, np.inf], np.float32))
    decision = acts(4, space, clip_actions=clip).act(OBSERVATIONS[0])
    assert decision.sent_action is decision.action


def test_without_normalisation_actions_can_be_limited() -> None:
    space = BoxSpace(np.array([-0.5, -np.inf], np.float32), np.array([0.5, 0.25], np.float32))
    policy = acts(4, space, normalize_actions=False, clip_actions=True)
    for decision in (policy.act(OBSERVATIONS[0]), policy.act(OBSERVATIONS)):
        assert np.array_equal(decision.sent_action, np.clip(decision.action, space.low, space.high))
        assert not np.array_equal(decision.sent_action, decision.action)


# --- weights come and go ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [
        module_weights(outputs=2),
        module_weights(5, outputs=3),
        {},
        b"",
        b"no model",
        {**module_weights(outputs=3), "pi.net.mlp.0.bias": np.array([0, np.nan, 0], np.float32)},
    ],
)
def test_weights_that_cannot_work_leave_the_ones_before_in_force(weights: Any) -> None:
    policy = acts(3, DiscreteSpace(3))
    before = policy.act(OBSERVATIONS).dist_inputs
    with pytest.raises(ConfigurationError) as caught:
        policy.load(weights)
    assert caught.value.hint
    assert np.array_equal(policy.act(OBSERVATIONS).dist_inputs, before)


@pytest.mark.parametrize("shape", [(), (3,), (5,), (2, 5), (1, 1, 4), (0,)])
def test_an_observation_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(LocalProtocolError, match=r"has shape \(4,\) or \(B, 4\), got"):
        acts(3, DiscreteSpace(3)).act(np.zeros(shape, np.float32))


@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize(
    "space, outputs", [(DiscreteSpace(4), 4), (box(2), 4), (MultiDiscreteSpace((2, 2)), 4)]
)
def test_an_observation_that_is_not_finite_is_told_as_such(
    space: Any, outputs: int, rows: int | None
) -> None:
    observation = np.zeros(4 if rows is None else (rows, 4), np.float32)
    observation[..., 2] = np.nan
    with pytest.raises(ConfigurationError, match="number 2 of an observation is nan"):
        acts(outputs, space).act(observation)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("space", [DiscreteSpace(4), box(2)])
def test_a_policy_that_overflows_is_told_as_such(space: Any, rows: int) -> None:
    weights = module_weights(outputs=4)
    weights[f"{SHARED}net.mlp.2.bias"][:] = 100.0
    weights["pi.net.mlp.0.weight"][:] = 3e38
    weights["pi.log_std_clip_param_const"][:] = np.inf
    policy = Policy(weights, box(4), space)
    with pytest.raises(ConfigurationError, match="give no finite probability"):
        policy.act(np.full((rows, 4) if rows > 1 else 4, 100.0, np.float32))


@pytest.mark.parametrize(
    "space", [box(0), BoxSpace(np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32))]
)
def test_a_space_of_observations_that_is_no_vector_is_refused(space: BoxSpace) -> None:
    with pytest.raises(ConfigurationError, match="the observation space has shape"):
        Policy(module_weights(), space, DiscreteSpace(2))


@pytest.mark.parametrize("space", [gymnasium.spaces.Discrete(2), gymnasium.spaces.Box(-1.0, 1.0, (2,))])
def test_a_space_of_gymnasium_is_told_with_what_to_make_of_it(space: Any) -> None:
    with pytest.raises(ConfigurationError, match=type(space).__name__) as caught:
        Policy(module_weights(), box(4), space)
    assert "gymnasium's Box BoxSpace(space.low, space.high)" in caught.value.hint


# --- drawing actions -----------------------------------------------------------------------------------------------


MANY = 5_000
ALL: list[Distribution] = [Categorical(4), Categorical(300), MultiCategorical((3, 2, 4)), DiagGaussian(3)]


def inputs_for(kind: Distribution, rows: int) -> NDArray[np.float32]:
    return np.random.default_rng(5).normal(size=(rows, kind.inputs)).astype(np.float32)


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
