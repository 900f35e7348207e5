"""Whether what was said of actions, how probable they were, is true of those that are sent.

A learner weighs each step by how much more or less probable its own policy makes the action. Where what was said is of
another action, as of one before it was stretched to its bounds, it learns from noise, and nothing else tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.interface import BoxSpace
from ospbridge.policy.distributions import DiagGaussian, distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import Space
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["why_improbable"]

NEAR: Final = 0.01
"""So far, and by so much of it, logarithms may differ: the float32 of others are not added up as ours are."""
EDGE: Final = 0.99
"""Beyond it float32 does not tell how far from 0 an action was before it was squashed."""


def why_improbable(fragment: EpisodeFragment, space: Space) -> str:
    """The first step of a checked fragment that its ``action_logp`` cannot be of; empty where there is none.

    As far as actions are drawn from RLlib's distributions: those of PPO, or the squashed one that SAC has for numbers.
    """
    inputs, said = fragment.action_dist_inputs, fragment.action_logp
    drawn_from = distribution(space)
    if inputs is None or said is None or inputs.shape[1] != drawn_from.inputs:
        return ""
    with np.errstate(all="ignore"):
        found = drawn_from.logp(inputs, fragment.actions)
        wrong = _apart(found, said)
    if not wrong.any() or (isinstance(space, BoxSpace) and _squashed(inputs, fragment.actions, said)):
        return ""
    row = int(np.argmax(wrong))
    return (
        f"step {fragment.t_started + row}: action_logp is {said[row]:.4g}, and {found[row]:.4g} by the action and its "
        f"action_dist_inputs; so it is in {int(wrong.sum())} of {fragment.steps} steps"
    )


def _apart(found: NDArray[np.float32], said: NDArray[np.float32]) -> NDArray[np.bool_]:
    apart: NDArray[np.bool_] = np.abs(found - said) > NEAR * (1 + np.abs(found))
    return apart


def _squashed(inputs: NDArray[np.float32], actions: NDArray[np.float32], said: NDArray[np.float32]) -> bool:
    """Whether ``said`` is of numbers that the hyperbolic tangent brought within [-1, 1]: ``TorchSquashedGaussian``."""
    size = actions.shape[1]
    inside = (np.abs(actions) <= EDGE).all(1)
    if not inside.any() or (np.abs(actions) > 1).any():
        return False
    inputs, actions, said = inputs[inside], actions[inside].astype(np.float64), said[inside]
    with np.errstate(all="ignore"):
        before = DiagGaussian(size).logp(inputs, np.arctanh(actions).astype(np.float32))
        found = before - np.log1p(-actions * actions).sum(1)
        return not _apart(found, said).any()
