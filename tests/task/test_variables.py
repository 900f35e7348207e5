"""Numbers in the texts of variables."""

from __future__ import annotations

import pytest

from ospbridge.task.variables import number_in


@pytest.mark.parametrize(
    "text, component, expected",
    [
        ("0.05", None, 0.05),
        ("0,05", None, 0.05),
        ("-1,5e-3", None, -1.5e-3),
        ("T", None, 1.0),
        ("(0.4,0.03,0)", 1, 0.03),
        ("(4,5)", 0, 4.0),
    ],
)
def test_a_number_is_read_with_a_point_or_a_comma(text: str, component: int | None, expected: float) -> None:
    assert number_in(text, component) == expected


@pytest.mark.parametrize("text", ["", "soon", "1,2,3", "(1,2)", "1,234.5"])
def test_what_is_no_single_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="could not convert"):
        number_in(text, None)
