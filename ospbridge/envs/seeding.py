"""Gymnasium's seeds as OSP's.

OSP seeds are 32-bit integers and 0 means "don't care"; Gymnasium's are any non-negative integer. Each maps to a fixed
seed in [1, 2**31 - 1]; those that lie there already map to themselves, so that a local run with the same seed can be
compared.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from ospbridge.errors import UsageError
from ospbridge.interface import LARGEST_SEED, DrawnSeed
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["drawn_seed", "each_seed", "osp_seed"]


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
