"""The page on trust names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "trust.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize("file, test", NAMED, ids=[test or file for file, test in NAMED])
def test_there_is_such_a_test(file: str, test: str) -> None:
    code = (ROOT / file).read_text()
    assert not test or re.search(rf"^(?:async )?def {test}\(", code, re.MULTILINE)
