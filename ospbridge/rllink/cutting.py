"""Batches of experience: where one may end, and how it is split into messages that the protocol can carry.

The two modes mean what RLlib's ``batch_mode`` means. Facts on servers: observed on Ray 2.47.1 and 2.60.0.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from ospbridge.errors import LocalProtocolError
from ospbridge.rllink.framing import LARGEST_BODY
from ospbridge.rllink.messages import Episodes, EpisodesAndGetState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.rllink.dialects import Dialect
    from ospbridge.rllink.fragments import EpisodeFragment

__all__ = ["BatchMode", "cut", "split"]

MESSAGE: Final = 200
"""Bytes around the episodes of a message, at most."""


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
