"""Whether agents have the actions that an upstream learns for, as far as its settings and its weights tell.

The mean and the deviation of one number are as many outputs as two choices have, so that widths do not tell one from
the other. Observed on Ray 2.60.0: taken for the wrong one, experience ends the whole training, or is learned from
without a word, and without any use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.policy.describing import box_of, describe, one_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ospbridge.daemon.relay.acting import Kind
    from ospbridge.interface import Space
    from ospbridge.policy.describing import Description
    from ospbridge.rllink.fragments import EpisodeFragment
    from ospbridge.rllink.pickled_config import FoundConfig, OtherSpace

__all__ = [
    "SaidSpaces",
    "action_of",
    "actions_misfit",
    "actions_of",
    "described",
    "other_bounds",
    "require_same_actions",
]

POLICY: Final = (-1.0, 1.0)
"""Within these a policy acts whose actions are stretched."""


@dataclass(frozen=True, slots=True)
class SaidSpaces:
    """What a server's settings say of its spaces; None: nothing that is understood."""

    observation: tuple[int, ...] | str | None = None
    """The shape of a box, or what else it is."""
    action: str | None = None
    """In the words of ``Description.actions``, or what else it is."""
    bounds: tuple[tuple[float, ...], tuple[float, ...]] | None = field(default=None, compare=False)
    """Of the numbers of an action, least and most. The policy is the same whatever they are."""

    @classmethod
    def of(cls, found: FoundConfig) -> Self:
        observation, action = found.observation_space, found.action_space
        return cls(
            observation.low.shape if isinstance(observation, BoxSpace) else _in_words(observation),
            _in_words(action),
            _bounds(action) if isinstance(action, BoxSpace) else None,
        )


def _bounds(space: BoxSpace) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(space.low.ravel().tolist()), tuple(space.high.ravel().tolist())


def other_bounds(kind: Kind, said: SaidSpaces) -> str:
    """Which number of an action has other bounds in the server's settings; empty where none has, or they do not say.

    Those that a policy acts within before it is stretched are as good as the agents' own.
    """
    if said.bounds is None or not isinstance(kind.action, BoxSpace):
        return ""
    ours = list(zip(*_bounds(kind.action), strict=True))
    theirs = list(zip(*said.bounds, strict=True))
    if len(ours) != len(theirs) or set(theirs) == {POLICY}:
        return ""
    at = next((at for at, (own, other) in enumerate(zip(ours, theirs, strict=True)) if own != other), None)
    if at is None:
        return ""
    (low, high), (least, most) = ours[at], theirs[at]
    return (
        f"number {at} of an action is between {low:g} and {high:g} for the agents, and between {least:g} and {most:g} "
        "for the server"
    )


def _in_words(space: Space | OtherSpace | None) -> str | None:
    if space is None:
        return None
    if isinstance(space, BoxSpace):
        # Its shape does not matter: an action is drawn as one row of numbers.
        return box_of(space.low.size)
    return one_of(space.n) if isinstance(space, DiscreteSpace) else space.name


def actions_of(space: Space) -> str:
    """The action space of an agent, in the words of ``Description.actions``."""
    return one_of(space.n) if isinstance(space, DiscreteSpace) else box_of(len(space.low))


def action_of(fragment: EpisodeFragment) -> str | None:
    """As ``actions_of``, of whoever lived it; None where it does not say how many choices there were."""
    if fragment.actions.dtype == np.float32:
        return box_of(fragment.actions.shape[1])
    return None if fragment.choices is None else one_of(fragment.choices)


def described(policy: Mapping[str, NDArray[np.float32]] | bytes, *, named: bool) -> Description:
    """What weights tell. ``named``: of a server that says what it is called, as RLlib's do not.

    That the outputs of a Gaussian are joined from two is so in RLlib's exports; in a model of a user's own it need not.
    """
    found = describe(policy)
    return replace(found, actions=()) if named and isinstance(policy, bytes) else found


def actions_misfit(action: str, said: SaidSpaces, weights: Description | None) -> str:
    """What the server learns for instead of ``action``; empty where that is the same, or not known."""
    if said.action is not None:
        return said.action if said.action != action else ""
    if weights is None or not weights.actions or action in weights.actions:
        return ""
    return " or ".join(weights.actions)


def require_same_actions(kind: Kind, said: SaidSpaces, weights: Description) -> None:
    """Raises ConfigurationError where the server learns for other actions than those of these agents."""
    if weights.outputs not in (None, kind.dist_inputs) or weights.trouble:
        # Whoever makes the policy tells that better.
        return
    action = actions_of(kind.action)
    other = actions_misfit(action, said, weights)
    if other:
        raise ConfigurationError(
            f"the action space of the agents is {action}, the one that the server learns for is {other}",
            hint="give the server the action space of these agents, or the agents a scenario with that one",
        )
