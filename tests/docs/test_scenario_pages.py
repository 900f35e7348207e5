"""The pages about scenarios say what the code does."""

from __future__ import annotations

import re
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from ospbridge.envs.registration import SCENARIO_IDS
from ospbridge.task.expressions import CONSTANTS, FUNCTIONS
from ospbridge.task.loading import read
from ospbridge.task.scenario import (
    Action,
    AgentScenario,
    ArenaTable,
    Episode,
    GymTable,
    Match,
    NotFinite,
    Observe,
    OutOfBounds,
    OutOfRange,
    Ranges,
    ResetObservation,
    Scenario,
    SourceKind,
    SyntheticTable,
)

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference" / "scenario-keys.md").read_text()
HOW_TO = (DOCS / "how-to" / "scenarios.md").read_text()

TABLES = {
    "The file": Scenario,
    "`[[agent]]`": AgentScenario,
    "`match`": Match,
    "`[agent.action]`": Action,
    "`[agent.observe]`": Observe,
    "`[agent.episode]`": Episode,
    '`kind = "gym"`': GymTable,
    '`kind = "arena"`': ArenaTable,
    '`kind = "synthetic"`': SyntheticTable,
}


def section(heading: str) -> str:
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", REFERENCE, re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


def rows(heading: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section(heading), re.MULTILINE))


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_of_a_table_is_documented_and_no_other(heading: str) -> None:
    wanted = [field.name for field in fields(TABLES[heading]) if field.name != "origin"]
    assert sorted(rows(heading)) == sorted(wanted)


def said(field: Field[Any]) -> str | None:
    """A default as TOML; None where words say it."""
    value = field.default
    if value is MISSING or value is None or value in ("", ()):
        return None
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, tuple):
        return "`[" + ", ".join(f'"{text}"' for text in value) + "]`"
    return f"`{value}`"


@pytest.mark.parametrize("heading", TABLES)
def test_the_defaults_are_those_of_the_code(heading: str) -> None:
    documented = rows(heading)
    for field in fields(TABLES[heading]):
        if field.name not in ("origin", "kind") and said(field) is not None:
            assert documented[field.name] == said(field), field.name


@pytest.mark.parametrize("words", [NotFinite, OutOfBounds, OutOfRange, Ranges, ResetObservation])
def test_every_word_of_a_choice_is_documented(words: type[StrEnum]) -> None:
    for word in words:
        assert f'`"{word}"`' in REFERENCE, word


def test_every_source_of_a_name_is_documented() -> None:
    for kind in SourceKind:
        assert f'`"{kind}:/' in REFERENCE


def test_every_function_and_constant_of_expressions_is_documented_and_no_other() -> None:
    text = section("Expressions")
    listed = text.split("functions:")[1].split("\n\n")[1]
    assert re.findall(r"`(\w+)`", listed) == list(FUNCTIONS)
    for name in CONSTANTS:
        assert f"`{name}`" in text


def test_the_examples_are_scenarios() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    assert blocks
    for block in blocks:
        read(block)


def test_the_shipped_scenarios_are_listed_with_their_ids() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `([\w/-]+)` \|", HOW_TO, re.MULTILINE))
    assert listed == {scenario: env_id for env_id, (scenario, _) in SCENARIO_IDS.items()}
