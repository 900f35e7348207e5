"""Flags before the file, the file before defaults, and where each value is from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from ospbridge.config.effective import Entry, Value, effective
from ospbridge.config.keys import Key, Kind, Section
from ospbridge.config.reading import WrittenFile, read
from ospbridge.config.showing import shown
from ospbridge.errors import ConfigurationError, UsageError

SECTION = Section(
    "simulator",
    (
        Key(name="name", kind=Kind.TEXT, alone=True),
        Key(name="address", kind=Kind.TEXT, alone=True),
        Key(name="quorum", kind=Kind.WHOLE),
        Key(name="agents", kind=Kind.TEXTS, convert=tuple),
    ),
)
DEFAULTS = {"address": Value("here", "here"), "quorum": Value(1, 1), "agents": Value((), [])}


def written(text: str) -> WrittenFile:
    return read(text, (SECTION,), origin="osp.toml", directory=Path("/"))


TWO = written('[[simulator]]\nname = "a"\nquorum = 2\n[[simulator]]\nname = "b"\naddress = "there"\n')


def values(entry: Entry) -> dict[str, object]:
    return {name: value.value for name, value in entry.values.items()}


def test_a_flag_that_names_what_one_can_have_is_refused_for_several() -> None:
    flags = DEFAULTS | {"address": Value("x", "x", "--simulator")}
    with pytest.raises(UsageError, match=r"--simulator is for one simulator, and osp.toml has 2") as caught:
        effective(SECTION, TWO, flags)
    assert "address" in caught.value.hint


@pytest.mark.parametrize(
    "name, address, told",
    [
        ("a", "", "name is 'a', which another"),
        ("b", 'address = "there"', "address is 'there', which another"),
        ("b", "", "address is 'here', which another"),
    ],
)
def test_what_only_one_can_have_is_refused_for_a_second(name: str, address: str, told: str) -> None:
    file = written(f'[[simulator]]\nname = "a"\n{address}\n[[simulator]]\nname = "{name}"\n{address}\n')
    with pytest.raises(ConfigurationError, match=re.escape(f"osp.toml:4: simulator[1]: {told}")) as caught:
        effective(SECTION, file, DEFAULTS)
    assert "osp.toml:1: simulator[0]" in caught.value.hint


def test_what_is_shown_is_a_file_that_says_the_same() -> None:
    odd = 'é "quoted" \\ tab\t del\x7f \U0001f916'
    flags = DEFAULTS | {"agents": Value((odd, "b"), [odd, "b"], "--agent")}
    entries = effective(SECTION, TWO, flags)
    text = shown(entries, origins=False)
    again = effective(SECTION, written(text), DEFAULTS)
    assert [values(entry) for entry in again] == [values(entry) for entry in entries]
    assert tomllib.loads(text)["simulator"][0]["agents"] == [odd, "b"]
    assert shown(again, origins=False) == text
