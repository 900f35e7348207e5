"""The example of a configuration has every key that there is, with its default."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ospbridge.cli.connect import connect
from ospbridge.cli.keys import option_of, sections
from ospbridge.config.keys import Key, Kind
from ospbridge.config.reading import read
from ospbridge.service.installing import shipped_text

EXAMPLE = shipped_text("ospbridge.toml")
SECTIONS = sections(connect)
OPTIONS = {option.name: option for option in connect.params}
LINES = EXAMPLE.splitlines()


def section_lines(section: str) -> list[str]:
    """What stands below a section's head, which may be commented out."""
    heads = [line.lstrip("#") for line in LINES]
    (at,) = [n for n, head in enumerate(heads) if head in (f"[[{section}]]", f"[{section}]")]
    rest = LINES[at + 1 :]
    end = next((n for n, line in enumerate(rest) if re.fullmatch(r"#?\[+\w+\]+", line)), len(rest))
    return rest[:end]


def written(section: str) -> dict[str, Any]:
    """The values that stand there, commented out or not, in their order."""
    found: dict[str, Any] = {}
    for line in section_lines(section):
        if re.match(r"#?\w+ = ", line):
            found |= tomllib.loads(line.lstrip("#"))
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_stands_in_it_once_in_its_order(section: str) -> None:
    names = re.findall(r"^#?(\w+) = ", "\n".join(section_lines(section)), re.MULTILINE)
    assert names == [key.name for key in SECTIONS[section].keys]


@pytest.mark.parametrize(
    "section, key", [(name, key) for name, each in SECTIONS.items() for key in each.keys],
    ids=lambda value: getattr(value, "name", value),
)  # fmt: skip
def test_what_is_commented_out_is_the_default_where_there_is_one(section: str, key: Key) -> None:
    option = OPTIONS.get(option_of(section, key.name))
    default = getattr(option, "default", None)
    if key.kind is Kind.FLAG:
        assert default is None or written(section)[key.name] is (default is True)
    elif isinstance(default, str | int | float) and not isinstance(default, bool):
        assert written(section)[key.name] == default


def test_it_is_a_configuration_as_it_is_and_with_every_key() -> None:
    tables = list(SECTIONS.values())
    found = read(EXAMPLE, tables, origin="example", directory=Path("/etc/ospbridge"))
    (simulator,) = found.tables["simulator"]
    assert simulator.said == {"address": "127.0.0.1:45454"}
    full = re.sub(r"^#(?=\w+ = |\[)", "", EXAMPLE, flags=re.MULTILINE)
    found = read(full, tables, origin="example", directory=Path("/etc/ospbridge"))
    for name, section in SECTIONS.items():
        (table,) = found.tables[name]
        assert set(table.said) == {key.name for key in section.keys}
