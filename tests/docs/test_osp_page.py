"""The page on OSP in practice: its table is the profiles, and its figures are those that the code goes by."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any

from ospbridge.cli.conformance import DEVIATIONS
from ospbridge.interface import DEFAULT_PORT
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.timing import RESTART_SETTLES

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "osp.md").read_text("utf-8")


def words(value: Any) -> str:
    """A property as the page has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return f"`{value.name}`" if isinstance(value, int) else value.value
    if value is None or not value:
        return "none" if value is None else "0 s" if isinstance(value, float) else "the same"
    if isinstance(value, float):
        return f"{value:g} s"
    if isinstance(value, int):
        return str(value)
    return ", ".join(f"`{mine}` is `{theirs}`" for mine, theirs in value.items())


def rendered() -> list[tuple[str, str, str]]:
    names = [field.name for field in fields(Profile) if field.name != "name"]
    return [(name, words(getattr(DOCUMENT, name)), words(getattr(NERD, name))) for name in names]


def test_the_table_has_every_property_of_both_profiles() -> None:
    assert re.findall(r"^\| `(\w+)` \| (.+) \| (.+) \|$", PAGE, re.MULTILINE) == rendered()


def test_its_figures_are_those_of_the_code() -> None:
    assert f"in {DEVIATIONS} points" in " ".join(PAGE.split())
    assert f"the well-known port, {DEFAULT_PORT}," in PAGE
    assert f"a silence shorter than {1000 * NERD.patience:g} ms" in PAGE
    assert f"An answer takes {1000 * NERD.init_takes:g} ms" in PAGE
    assert f"cuts what it sends at {NERD.datagram_limit} bytes" in PAGE
    assert RESTART_SETTLES == 0.5
    assert "waits half a second" in PAGE
