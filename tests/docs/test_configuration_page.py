"""The page of configuration keys says what the options say, which the keys are made from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ospbridge.cli.connect import connect
from ospbridge.cli.keys import option_of, sections
from ospbridge.config.keys import Key, Kind
from ospbridge.config.reading import read

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text()
SECTIONS = sections(connect)
OPTIONS = {option.name: option for option in connect.params}
KEYS = [(name, key) for name, section in SECTIONS.items() for key in section.keys]


def rows(section: str) -> dict[str, tuple[str, str]]:
    (text,) = re.findall(
        rf"^## `{re.escape(SECTIONS[section].header)}`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    found = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", text, re.MULTILINE)
    return {name: (default, meaning) for name, default, meaning in found}


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_is_documented_in_its_order_and_no_other(section: str) -> None:
    assert list(rows(section)) == [key.name for key in SECTIONS[section].keys]


def default(section: str, key: Key) -> str | None:
    """As TOML; None where words say it."""
    option = OPTIONS.get(option_of(section, key.name))
    value = getattr(option, "default", None)
    if key.kind is Kind.FLAG:
        return None if value is None else "true" if value is True else "false"
    if isinstance(value, str):
        return f'"{value}"'
    return str(value) if isinstance(value, int | float) else None


@pytest.mark.parametrize("section, key", KEYS, ids=lambda value: getattr(value, "name", value))
def test_defaults_and_words_are_those_of_the_options(section: str, key: Key) -> None:
    told, meaning = rows(section)[key.name]
    wanted = default(section, key)
    assert wanted is None or told == f"`{wanted}`"
    for word in key.words:
        assert f'`"{word}"`' in told + meaning, word


def test_every_option_but_those_about_the_command_is_a_key() -> None:
    keys = {option_of(section, key.name) for section, key in KEYS}
    assert {str(name) for name in OPTIONS} - keys == {"config"}


def test_the_example_is_a_configuration() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    found = read(example, list(SECTIONS.values()), origin="page", directory=Path("/"))
    assert [table.said["name"] for table in found.tables["simulator"]] == ["left", "right"]
