"""Batches of experience: what is checked before one is sent, where one may end, how it is split into messages.

One bad episode kills a real server's listener for good. Observed on Ray 2.47.1 and 2.60.0: a missing key or a row too
few ends the thread that listens, and no later message is ever answered; observations of the wrong width end the whole
training; a NaN loses its batch without a word. The two modes mean what RLlib's ``batch_mode`` means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import BoxSpace
from ospbridge.rllink.framing import LARGEST_BODY
from ospbridge.rllink.messages import Episodes, EpisodesAndGetState

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import Space
    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.messages import EpisodeFragment

__all__ = ["NOTHING_MORE", "RLLIB", "BatchMode", "Needs", "check_fragment", "check_fragments", "cut", "split"]

HINT: Final = "the episode was not sent: a server of RLlink does not survive a bad one"
MESSAGE: Final = 200
"""Bytes around the episodes of a message, at most."""


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


class BatchMode(StrEnum):
    """Where a batch may end."""

    TRUNCATE_EPISODES = "truncate_episodes"
    """After exactly so many steps, in mid-episode if need be; the episode goes on in the next batch."""
    COMPLETE_EPISODES = "complete_episodes"
    """With the episode in which the wanted number of steps is reached; only finished episodes are sent."""


def cut(fragment: EpisodeFragment, at: int, *, continued: bool) -> tuple[EpisodeFragment, EpisodeFragment]:
    """The first ``at`` steps of a fragment and the others, 0 < ``at`` < its steps.

    The second piece has the same id, starts at the time where the first ends, and its first observation is the
    first's last. The end of the episode is the second's. Where pieces are not known to belong together
    (``continued`` false) the first is marked truncated: an episode of its own, cut by us.
    """
    if not 0 < at < fragment.steps:
        raise LocalProtocolError(
            f"episode {fragment.id!r} of {fragment.steps} steps cannot be cut into two pieces at step {at}"
        )
    inputs, logp = fragment.action_dist_inputs, fragment.action_logp
    first = replace(
        fragment,
        observations=fragment.observations[: at + 1],
        actions=fragment.actions[:at],
        rewards=fragment.rewards[:at],
        action_dist_inputs=None if inputs is None else inputs[:at],
        action_logp=None if logp is None else logp[:at],
        terminated=False,
        truncated=not continued,
    )
    second = replace(
        fragment,
        observations=fragment.observations[at:],
        actions=fragment.actions[at:],
        rewards=fragment.rewards[at:],
        action_dist_inputs=None if inputs is None else inputs[at:],
        action_logp=None if logp is None else logp[at:],
        t_started=fragment.t_started + at,
    )
    return first, second


def split(
    fragments: Sequence[EpisodeFragment],
    dialect: Dialect,
    *,
    await_weights: bool,
    least_steps: int = 1,
    largest: int = LARGEST_BODY,
) -> list[Episodes]:
    """The messages that carry the fragments in order, each at most ``largest`` bytes.

    A fragment whose episode goes on is marked truncated where the dialect cannot continue it.
    Where weights are awaited the last one is an EpisodesAndGetState and the others are Episodes. ``least_steps`` is
    the batch that the server learns from: one that waits for weights with less than that never answers. A server may
    learn from the first messages before the last comes, so either the last holds a whole batch, or those before it
    hold less than one and all together a whole one. Raises LocalProtocolError where neither can be.
    """
    steps = sum(fragment.steps for fragment in fragments)
    if not fragments or steps < least_steps:
        raise LocalProtocolError(
            f"expected a batch of {max(1, least_steps)} steps at least, got {len(fragments)} episodes of {steps} steps",
            hint="an RLlink server that is asked for weights with less than its batch never answers; collect on",
        )
    pieces = [
        piece
        for fragment in fragments
        for piece in _small_enough(_in(fragment, dialect), dialect, largest - MESSAGE)
    ]
    groups = _grouped(pieces, dialect, largest - MESSAGE)
    if not await_weights:
        return [Episodes(group) for group in groups]
    last = sum(piece.steps for piece in groups[-1])
    if last < least_steps <= steps - last:
        raise LocalProtocolError(
            f"{steps} steps do not fit one message of {largest} bytes, and what comes last would be {last} of the "
            f"{least_steps} steps that the server waits for",
            hint="send fewer steps at once: one batch at a time",
        )
    return [*(Episodes(group) for group in groups[:-1]), EpisodesAndGetState(groups[-1])]


def _in(fragment: EpisodeFragment, dialect: Dialect) -> EpisodeFragment:
    if fragment.done or dialect.continues_episodes:
        return fragment
    return replace(fragment, truncated=True)


def _small_enough(fragment: EpisodeFragment, dialect: Dialect, largest: int) -> list[EpisodeFragment]:
    """The fragment, in as many pieces as it takes for each to have ``largest`` bytes at most."""
    pieces = []
    size = dialect.size(fragment)
    while size > largest:
        if fragment.steps < 2:
            raise LocalProtocolError(
                f"one step of episode {fragment.id!r} may take {size} bytes, and a message may have {largest}"
            )
        at = max(1, min(fragment.steps - 1, fragment.steps * largest // (size + size // 8)))
        first, fragment = cut(fragment, at, continued=dialect.continues_episodes)
        pieces += _small_enough(first, dialect, largest)
        size = dialect.size(fragment)
    pieces.append(fragment)
    return pieces


def _grouped(
    pieces: list[EpisodeFragment], dialect: Dialect, largest: int
) -> list[tuple[EpisodeFragment, ...]]:
    """The pieces in order, in groups that fit one message. The last group is as full as it can be."""
    groups: list[list[EpisodeFragment]] = [[]]
    size = 0
    for piece in reversed(pieces):
        needed = dialect.size(piece)
        if groups[-1] and size + needed > largest:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += needed
    return [tuple(reversed(group)) for group in reversed(groups)]
