"""Expressions of others: what is wrong with them is one error, and what is odd about them none."""

from __future__ import annotations

import re

import pytest

from ospbridge.osp.patterns import compiled


@pytest.mark.parametrize("odd", ["[[a]", "[a||b]"])
def test_what_python_would_warn_of_is_a_pattern(odd: str) -> None:
    with pytest.warns(FutureWarning):
        re.compile(odd)
    re.purge()
    assert compiled(odd).pattern == odd


@pytest.mark.parametrize("wrong", ["(", "a**", "a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_what_is_wrong_or_too_much_is_one_error(wrong: str) -> None:
    with pytest.raises(re.error):
        compiled(wrong)
