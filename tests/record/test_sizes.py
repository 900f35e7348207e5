"""Sizes as people write them."""

from __future__ import annotations

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.sizes import parse_size


@pytest.mark.parametrize(
    "text, size",
    [("1", 1), ("512B", 512), ("2k", 2048), ("1.5 GiB", 3 * 2**29), (" 2GB ", 2**31), ("1T", 2**40)],
)
def test_a_number_with_a_unit_is_so_many_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "M", "1 X", "1e9", "0.5", "inf", "٣"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="no size"):
        parse_size(text)
