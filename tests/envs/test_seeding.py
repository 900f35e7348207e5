"""Which seed each environment of several is given."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.envs.seeding import each_seed
from ospbridge.errors import UsageError


def test_one_seed_is_counted_on_from_and_several_are_one_for_each() -> None:
    assert list(each_seed(None, 2)) == [None, None]
    assert list(each_seed(7, 3)) == [7, 8, 9]
    assert list(each_seed(np.int64(7), 2)) == [7, 8]  # type: ignore[arg-type]  # as programs draw them
    assert list(each_seed([5, None], 2)) == [5, None]


def test_seeds_for_other_environments_are_refused() -> None:
    with pytest.raises(UsageError, match="3 seeds for 2 environments"):
        each_seed([1, 2, 3], 2)
