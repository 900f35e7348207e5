"""Whether numbers are numbers: NaN and infinity are looked for in every action and in many observations."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["FEW", "MANY", "all_finite", "mended"]

FEW: Final = 24
"""So many numbers are added up sooner by Python."""
MANY: Final = 16_384
"""More are multiplied by nothing that is kept for it."""
_zeros: Final[NDArray[np.float32]] = np.zeros(MANY, np.float32)


def all_finite(numbers: NDArray[np.float32]) -> bool:
    """Whether none of float32[n] is NaN or infinite."""
    count = len(numbers)
    if count <= FEW:
        # A sum of float32 in doubles is finite exactly when every one is.
        return isfinite(sum(numbers.tolist()))
    if count <= MANY:
        # Zero times infinity is NaN, and so is all that is added to it. One call, where isfinite and all are two, and
        # one that warns nobody.
        return isfinite(np.vdot(numbers, _zeros[:count]))
    return bool(np.isfinite(numbers).all())


def mended(
    numbers: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]
) -> tuple[NDArray[np.float32], int]:
    """float32[n] with 0 in place of NaN and infinity, or the nearest number from ``low`` to ``high``.

    Also returns the place of the first of them; there is one at least.
    """
    wrong = ~np.isfinite(numbers)
    good = np.where(wrong, np.clip(np.float32(0.0), low, high), numbers).astype(np.float32)
    return good, int(np.flatnonzero(wrong)[0])
