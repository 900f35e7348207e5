"""Gymnasium's conventions: spaces, seeds, warnings, and that environments cannot be copied.

OSP seeds are 32-bit integers and 0 means "don't care"; Gymnasium's are any non-negative integer. Each maps to a fixed
seed in [1, 2**31 - 1]; those that lie there already map to themselves, so that a local run with the same seed can be
compared.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import logger

from ospbridge.errors import UsageError
from ospbridge.interface import LARGEST_SEED, BoxSpace, DrawnSeed, Space
from ospbridge.osp.notices import WorldReset, told_by
from ospbridge.text import LINE, pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.interface import Feedback
    from ospbridge.osp.notices import Notice
    from ospbridge.session.core import SessionCore

__all__ = [
    "drawn_seed",
    "each_seed",
    "gym_space",
    "not_copied",
    "osp_seed",
    "say",
    "tell",
    "tell_at_once",
    "tell_of_doubt",
]


def gym_space(space: Space) -> gymnasium.Space[Any]:
    """Box of float32, or Discrete."""
    if isinstance(space, BoxSpace):
        return gymnasium.spaces.Box(space.low, space.high, dtype=np.float32)
    return gymnasium.spaces.Discrete(space.n)


def not_copied(env: object, another: str) -> UsageError:
    """The error of ``__getstate__``, which copying and pickling both ask; ``another`` makes one more environment."""
    return UsageError(
        f"{type(env).__name__} holds a connection of this process, and can be neither copied nor pickled",
        hint=f"make another one where it is wanted, for instance with {another}; processes take a function that makes "
        "it",
    )


# --- seeds -----------------------------------------------------------------------------------------------------------


def osp_seed(seed: int) -> int:
    """The simulator's seed for a Gymnasium seed: nonzero, 31 bits, always the same."""
    if 1 <= seed <= LARGEST_SEED:
        return seed
    digest = hashlib.sha256(str(seed).encode()).digest()
    return int.from_bytes(digest[:8], "little") % LARGEST_SEED + 1


def drawn_seed(random: np.random.Generator) -> DrawnSeed:
    """A seed from the environment's own generator."""
    return DrawnSeed(random.integers(1, LARGEST_SEED, endpoint=True))


def each_seed(seed: int | Sequence[int | None] | None, count: int) -> Sequence[int | None]:
    """Gymnasium's seed of each of ``count`` environments: ``seed + i``, or as a sequence says.

    Raises UsageError for one of another length, and for what is neither.
    """
    if seed is None:
        return [None] * count
    if isinstance(seed, (int, np.integer)):
        return [int(seed) + at for at in range(count)]
    try:
        given = len(seed)
    except TypeError:
        raise UsageError(
            f"seed is an int, or a list with one for each environment, got {seed!r}",
            hint="an int gives environment i the seed `seed + i`",
        ) from None
    if given != count:
        raise UsageError(
            f"{pluralize(given, 'seed')} for {pluralize(count, 'environment')}",
            hint="give one for each, or a single int",
        )
    return list(seed)


# --- warnings --------------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    """Warn the user, in one line."""
    logger.warn("%s", printable(text, LINE))


def tell(notices: Iterable[Notice]) -> str:
    """Warn of what these say of the simulator. Returns what is said of a reset by others, empty where none came."""
    told = told_by(notices)
    for remark in told.remarks:
        say(remark)
    return told.reset


def tell_at_once(core: SessionCore) -> None:
    """The same for what is there, and leave a reset by others to the next step, whose episode it ends."""
    notices = core.pop_notices()
    core.machine.notices.extend(n for n in notices if isinstance(n, WorldReset))
    tell(notices)


def tell_of_doubt(begun: Iterable[Feedback]) -> None:
    """Warn of abandoned episodes that cannot be trusted, which the first feedback of the next ones tells."""
    for reason in dict.fromkeys(feedback.reason for feedback in begun if feedback.reason):
        say(reason)
