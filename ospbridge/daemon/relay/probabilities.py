"""Whether what was said of actions, how probable they were, is true of those that are sent.

A learner weighs each step by how much more or less probable its own policy makes the action. Where what was said is of
another action, as of one before it was stretched to its bounds, it learns from noise, and nothing else tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.policy.distributions import distribution

if TYPE_CHECKING:
    from ospbridge.interface import Space
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["why_improbable"]

NEAR: Final = 0.01
"""So far, and by so much of it, logarithms may differ: the float32 of others are not added up as ours are."""


def why_improbable(fragment: EpisodeFragment, space: Space) -> str:
    """The first step of a checked fragment that its ``action_logp`` cannot be of; empty where there is none.

    As far as actions are drawn as RLlib's default distributions do.
    """
    inputs, said = fragment.action_dist_inputs, fragment.action_logp
    drawn_from = distribution(space)
    if inputs is None or said is None or inputs.shape[1] != drawn_from.inputs:
        return ""
    with np.errstate(all="ignore"):
        found = drawn_from.logp(inputs, fragment.actions)
        wrong = np.abs(found - said) > NEAR * (1 + np.abs(found))
    if not wrong.any():
        return ""
    row = int(np.argmax(wrong))
    return (
        f"step {fragment.t_started + row}: action_logp is {said[row]:.4g}, and {found[row]:.4g} by the action and its "
        f"action_dist_inputs; so it is in {int(wrong.sum())} of {fragment.steps} steps"
    )
