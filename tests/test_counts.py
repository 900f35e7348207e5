"""How many there are of something, in words."""

from __future__ import annotations

import pytest

from ospbridge.counts import numbered


@pytest.mark.parametrize(
    "told, expected",
    [
        (numbered(0, "step"), "0 steps"),
        (numbered(1, "step"), "1 step"),
        (numbered(2, "step"), "2 steps"),
        (numbered(1, "batch", "batches"), "1 batch"),
        (numbered(12345, "batch", "batches", form=","), "12,345 batches"),
    ],
)
def test_one_is_told_in_the_singular(told: str, expected: str) -> None:
    assert told == expected
