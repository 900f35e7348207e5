"""The page on autoreset says what the tests hold, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.envs.vectors import cart_poles

HERE = Path(__file__).parents[1]
PAGE = HERE.parent / "docs" / "explanation" / "autoreset.md"


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+)`", PAGE.read_text())
    there = "".join(file.read_text() for file in (HERE / "envs").glob("test_vector*.py"))
    assert len(named) > 10
    assert [name for name in named if f"def {name}(" not in there] == []


@pytest.mark.loopback
def test_the_example_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    with cart_poles(2) as addresses:
        for port, address in zip((45454, 45455), addresses, strict=True):
            example = example.replace(f"127.0.0.1:{port}", address)
        exec(compile(example, str(PAGE), "exec"), {})
