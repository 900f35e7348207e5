"""What stands in a configuration file, and every mistake in it with its line and key path."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ospbridge.config.effective import Entry, Value, effective, shown
from ospbridge.config.keys import Key, Kind, Section
from ospbridge.config.reading import WrittenFile, load, read
from ospbridge.errors import ConfigurationError, ConfigurationInvalid, UsageError


def even(said: str) -> int:
    if int(said) % 2:
        raise ValueError(f"{said} is odd")
    return int(said)


SIMULATOR = Section(
    "simulator",
    (
        Key(name="name", kind=Kind.TEXT, alone=True),
        Key(name="text", kind=Kind.TEXT),
        Key(name="agents", kind=Kind.TEXTS, convert=tuple),
        Key(name="file", kind=Kind.FILE, convert=Path),
        Key(name="whole", kind=Kind.WHOLE, least=1, most=10),
        Key(name="seconds", kind=Kind.NUMBER, least=0.0, most=60.0, above=True),
        Key(name="any", kind=Kind.NUMBER),
        Key(name="flag", kind=Kind.FLAG),
        Key(name="word", kind=Kind.WORD, words=("drive", "observe")),
        Key(name="even", kind=Kind.TEXT, convert=even),
        Key(name="address", kind=Kind.TEXT, alone=True),
        Key(name="hub", kind=Kind.TEXT, placed=lambda said, directory: f"{directory}:{said}"),
    ),
)
RLLINK = Section(
    "rllink", (Key(name="address", kind=Kind.TEXT, alone=True), Key(name="simulators", kind=Kind.TEXTS))
)
DAEMON = Section("daemon", (Key(name="level", kind=Kind.WORD, words=("debug", "info")),), single=True)
SECTIONS = (DAEMON, SIMULATOR, RLLINK)


def mistakes(text: str) -> tuple[str, ...]:
    with pytest.raises(ConfigurationInvalid) as caught:
        read(text, SECTIONS, origin="osp.toml", directory=Path("/etc/osp"))
    for mistake in caught.value.mistakes:
        assert mistake in caught.value.message
    assert caught.value.message.startswith("osp.toml has ")
    return caught.value.mistakes


@pytest.mark.parametrize(
    "line, value",
    [
        ('text = "a"', "a"),
        ('agents = ["a", "b*"]', ("a", "b*")),
        ('file = "x/y.pem"', Path("/etc/osp/x/y.pem")),
        ('file = "/x/y.pem"', Path("/x/y.pem")),
        ("whole = 10", 10),
        ("seconds = 60", 60.0),
        ("seconds = 0.5", 0.5),
        ("any = -1e9", -1e9),
        ("flag = true", True),
        ("flag = false", False),
        ('word = "observe"', "observe"),
        ('even = "4"', 4),
        ('hub = "a"', "/etc/osp:a"),
    ],
)
def test_a_value_is_what_the_program_takes(line: str, value: Any) -> None:
    file = read(f"[[simulator]]\n{line}\n", SECTIONS, origin="osp.toml", directory=Path("/etc/osp"))
    (table,) = file.tables["simulator"]
    ((found),) = table.values.values()
    assert found == value
    assert type(found) is type(value)
    assert list(table.lines.values()) == [2]


@pytest.mark.parametrize(
    "line, what",
    [
        ("text = 1", "simulator[0].text: expected a text, got 1"),
        ('text = ""', "simulator[0].text: expected a text, got ''"),
        ('agents = "a"', "simulator[0].agents: expected a list of texts, got 'a'"),
        ("agents = [1]", "simulator[0].agents: expected a list of texts, got a list of 1"),
        ("file = true", "simulator[0].file: expected a text, got true"),
        ("whole = 0", "simulator[0].whole: expected a whole number from 1 to 10, got 0"),
        ("whole = 11", "simulator[0].whole: expected a whole number from 1 to 10, got 11"),
        ("whole = 1.0", "simulator[0].whole: expected a whole number from 1 to 10, got 1.0"),
        ("whole = true", "simulator[0].whole: expected a whole number from 1 to 10, got true"),
        ("seconds = 0", "simulator[0].seconds: expected a number above 0 to 60, got 0"),
        ('seconds = "1 s"', "simulator[0].seconds: expected a number above 0 to 60, got '1 s'"),
        ("seconds = nan", "simulator[0].seconds: expected a number above 0 to 60, got nan"),
        ("any = inf", "simulator[0].any: expected a number, got inf"),
        (f"any = 1{'0' * 400}", "simulator[0].any: expected a number, got an integer of 1329 bits"),
        ("flag = 1", "simulator[0].flag: expected true or false, got 1"),
        (
            'word = "drve"',
            "simulator[0].word: expected 'drive' or 'observe', got 'drve' (did you mean 'drive'?)",
        ),
        ("word = [1]", "simulator[0].word: expected 'drive' or 'observe', got a list of 1"),
        ('even = "3"', "simulator[0].even: 3 is odd"),
        ('agent = "a"', "simulator[0].agent: unknown key (did you mean 'agents'?)"),
        ("zzz = 1", "simulator[0].zzz: unknown key (known are name, text, agents"),
        ('"a b" = 1', "simulator[0].'a b': unknown key"),
    ],
)
def test_a_mistake_is_told_with_its_line_its_key_path_and_what_was_expected(line: str, what: str) -> None:
    (mistake,) = mistakes(f"# a comment\n[[simulator]]\n{line}\n")
    assert mistake.startswith(f"line 3: {what}")


@pytest.mark.parametrize(
    "text, what",
    [
        ("[[simulatr]]\n", "simulatr: unknown key (did you mean 'simulator'?)"),
        (
            "[simulator]\n",
            "line 1: simulator: expected an array of tables, got a table (begin it with [[simulator]])",
        ),
        ("rllink = [1]\n", "line 1: rllink[0]: expected a table, got 1"),
        ("a = \n", "no TOML: Invalid value (at line 1, column 5)"),
        ("[[daemon]]\n", "line 1: daemon[0]: there is only one such table (begin it with [daemon])"),
        ("[daemon]\nlevels = 1\n", "line 2: daemon.levels: unknown key (did you mean 'level'?)"),
        ("daemon = 1\n", "line 1: daemon: expected a table, got 1"),
    ],
)
def test_what_is_no_table_of_a_section_is_told(text: str, what: str) -> None:
    (mistake,) = mistakes(text)
    assert mistake == what


# --- several -----------------------------------------------------------------------------------------------------


def test_several_simulators_need_names_of_their_own() -> None:
    found = mistakes('[[simulator]]\nname = "a"\n[[simulator]]\n[[simulator]]\nname = "c"\n')
    assert found == ('line 3: simulator[1]: has no name, and there are several (for instance name = "left")',)


@pytest.mark.parametrize(
    "known, told",
    [
        (("left", "right"), "did you mean 'left'?"),
        (("upper", "other"), "there are upper, other"),
    ],
)
def test_an_upstream_names_simulators_that_there_are(known: tuple[str, ...], told: str) -> None:
    text = "".join(f'[[simulator]]\nname = "{name}"\n' for name in known)
    (mistake,) = mistakes(f'{text}[[rllink]]\nsimulators = ["lft"]\n')
    assert mistake == f"line 6: rllink[0].simulators[0]: no simulator 'lft' ({told})"


# --- files -------------------------------------------------------------------------------------------------------


def test_paths_count_from_the_files_own_directory(tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text('[[simulator]]\nfile = "a.pem"\n')
    assert load(file, SECTIONS).tables["simulator"][0].values == {"file": tmp_path / "a.pem"}


@pytest.mark.parametrize(
    "content, told",
    [
        (None, "cannot be read: No such file"),
        (Path("/"), "cannot be read: Is a directory"),
        (b"a = 1\n\xff\xfe", "line 2: not UTF-8"),
        (b"#" * 1_000_001, "has more than 1,000,000 bytes"),
        (Path("/dev/zero"), "has more than 1,000,000 bytes"),
    ],
    ids=["nothing", "directory", "binary", "large", "endless"],
)
def test_a_file_that_is_none_is_told(content: bytes | Path | None, told: str, tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    if isinstance(content, Path):
        file.symlink_to(content)
    elif content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=str(file)) as caught:
        load(file, SECTIONS)
    assert told in caught.value.message
    assert caught.value.hint


# --- flags before the file, the file before defaults, and where each value is from ----------------------------------


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
