"""The page on limits has the numbers of the code."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
UNITS: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "s": 1}
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([^`|]+)` \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)


def value_of(name: str) -> Any:
    """``module.NAME``, or ``module.Class(parameter)`` for a parameter's default."""
    place, _, parameter = name.rstrip(")").partition("(")
    module, _, found = place.rpartition(".")
    thing = getattr(import_module(f"ospbridge.{module}"), found)
    return inspect.signature(thing).parameters[parameter].default if parameter else thing


def number(text: str) -> float:
    digits, _, unit = text.partition(" ")
    return float(digits.replace(",", "")) * UNITS.get(unit, 1)


@pytest.mark.parametrize("what, most, name, beyond", ROWS, ids=[row[2] for row in ROWS])
def test_a_limit_is_what_the_code_says(what: str, most: str, name: str, beyond: str) -> None:
    assert number(most) == value_of(name), what
    assert beyond.strip()


def test_every_row_is_looked_at() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and "`" in line]
    assert len(lines) == len(ROWS) > 40
