"""NaN and infinity are found wherever they stand, and nobody is warned of them."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.finite import FEW, MANY, all_finite


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, MANY, MANY + 1])
def test_what_is_no_number_is_found_wherever_it_stands(count: int) -> None:
    largest = float(np.finfo(np.float32).max)
    assert all_finite(np.full(count, largest, np.float32))
    assert all_finite(np.full(count, -largest, np.float32))
    for wrong in (np.nan, np.inf, -np.inf):
        for at in {0, count // 2, count - 1}:
            numbers = np.full(count, 0.5, np.float32)
            numbers[at] = wrong
            assert not all_finite(numbers)
    assert all_finite(np.zeros(0, np.float32))
