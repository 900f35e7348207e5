"""The pages on faults and on trust name tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE, TRUST = ((ROOT / "docs" / "explanation" / name).read_text() for name in ("faults.md", "trust.md"))
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE + TRUST)))
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| event |")]


@pytest.mark.parametrize("file, test", NAMED, ids=[test or file for file, test in NAMED])
def test_there_is_such_a_test(file: str, test: str) -> None:
    code = (ROOT / file).read_text()
    assert not test or re.search(rf"^(?:async )?def {test}\(", code, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS)
def test_every_row_names_what_is_seen_and_a_test(row: str) -> None:
    event, happens, seen, test = (cell.strip() for cell in row.strip("|").split("|"))
    assert event
    assert happens
    assert seen
    assert test == "the same two" or "`tests/" in test
