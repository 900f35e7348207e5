"""The check before experience is sent: one bad episode kills a real server's listener for good.

Observed on Ray 2.47.1 and 2.60.0: a missing key or a row too few ends the thread that listens, and no later message
is ever answered; observations of the wrong width end the whole training; a NaN loses its batch without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import BoxSpace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from ospbridge.interface import Space
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["NOTHING_MORE", "RLLIB", "Needs", "check_fragment", "check_fragments"]

HINT: Final = "the episode was not sent: a server of RLlink does not survive a bad one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a server wants of each episode, beyond arrays that fit each other. None: anything."""

    id: bool = True
    """Episodes that come in the dialect json have none."""
    action_dist_inputs: bool = True
    action_logp: bool = True
    observation_size: int | None = None
    action: Space | None = None
    dist_inputs_size: int | None = None


RLLIB: Final = Needs()
"""What every server of RLlib wants: its learners need the distribution that an action was drawn from."""
NOTHING_MORE: Final = Needs(id=False, action_dist_inputs=False, action_logp=False)
"""What a server wants that only records."""


def check_fragments(fragments: Iterable[EpisodeFragment], needs: Needs = RLLIB) -> None:
    """Check each, before any is sent; as ``check_fragment``."""
    for fragment in fragments:
        check_fragment(fragment, needs)


def check_fragment(fragment: EpisodeFragment, needs: Needs = RLLIB) -> None:
    """Raises LocalProtocolError, with episode and row, for a fragment that must not be sent."""
    steps = fragment.steps
    if not fragment.id and needs.id:
        raise _wrong(fragment, "needs an id")
    if fragment.t_started < 0:
        raise _wrong(fragment, f"cannot start at step {fragment.t_started}")
    if not steps:
        raise _wrong(fragment, "has no steps")
    _length(fragment, "observations", fragment.observations, steps + 1)
    _length(fragment, "actions", fragment.actions, steps)
    if not fragment.observations.shape[1]:
        raise _wrong(fragment, "has observations without numbers")
    _wanted(fragment, "action_dist_inputs", fragment.action_dist_inputs, needed=needs.action_dist_inputs)
    _wanted(fragment, "action_logp", fragment.action_logp, needed=needs.action_logp)
    _width(fragment, "observations", fragment.observations, needs.observation_size)
    if fragment.action_dist_inputs is not None:
        _width(fragment, "action_dist_inputs", fragment.action_dist_inputs, needs.dist_inputs_size)
    if needs.action is not None:
        _within(fragment, needs.action)
    if fragment.actions.dtype.kind == "f" and fragment.actions.ndim != 2:
        raise _wrong(fragment, "must have a row of numbers for each action")
    for name in ("observations", "actions", "rewards", "action_dist_inputs", "action_logp"):
        _finite(fragment, name)


def _wrong(fragment: EpisodeFragment, what: str) -> LocalProtocolError:
    return LocalProtocolError(f"episode {fragment.id!r} {what}", hint=HINT)


def _length(fragment: EpisodeFragment, name: str, array: NDArray[Any], expected: int) -> None:
    if len(array) != expected:
        raise LocalProtocolError(
            f"episode {fragment.id!r} of {fragment.steps} rewards needs {expected} {name}, row "
            f"{min(len(array), expected)} is where they part: there are {len(array)}",
            hint=HINT,
        )


def _wanted(fragment: EpisodeFragment, name: str, array: NDArray[Any] | None, *, needed: bool) -> None:
    if array is not None:
        _length(fragment, name, array, fragment.steps)
        if not array.size:
            raise _wrong(fragment, f"has {name} without numbers")
    elif needed:
        raise _wrong(fragment, f"needs {name} of every step, and has none")


def _width(fragment: EpisodeFragment, name: str, array: NDArray[Any], expected: int | None) -> None:
    if expected is not None and array.shape[1] != expected:
        raise _wrong(fragment, f"must have {expected} numbers a row of {name}, there are {array.shape[1]}")


def _within(fragment: EpisodeFragment, space: Space) -> None:
    """Of the right kind and size. Actions of a box are as sampled, so its bounds do not hold for them."""
    actions = fragment.actions
    if isinstance(space, BoxSpace):
        size = space.low.size
        if actions.dtype.kind != "f" or actions.ndim != 2 or actions.shape[1] != size:
            raise _other_actions(fragment, f"float32[N, {size}]")
        return
    if actions.dtype.kind != "i" or actions.ndim != 1:
        raise _other_actions(fragment, "int64[N]")
    outside = (actions < 0) | (actions >= space.n)
    if outside.any():
        row = int(np.argmax(outside))
        raise LocalProtocolError(
            f"episode {fragment.id!r}, row {row}: action {int(actions[row])} is none of {space.n} choices",
            hint=HINT,
        )


def _other_actions(fragment: EpisodeFragment, wanted: str) -> LocalProtocolError:
    found = f"{fragment.actions.dtype}{list(fragment.actions.shape)}"
    return LocalProtocolError(
        f"episode {fragment.id!r} must have actions of {wanted}, they are {found}", hint=HINT
    )


def _finite(fragment: EpisodeFragment, name: str) -> None:
    array = getattr(fragment, name)
    if array is None or np.isfinite(array).all():
        return
    row = int(np.argwhere(~np.isfinite(array))[0][0])
    raise LocalProtocolError(
        f"episode {fragment.id!r}, row {row} of {name}: {array[row]} is not finite", hint=HINT
    )
