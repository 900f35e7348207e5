from __future__ import annotations

import sys

import click
import pytest
from click.testing import CliRunner

from ospbridge.cli import CommandPlace, LazyGroup
from ospbridge.cli.output import (
    Column,
    plain_lines,
)
from ospbridge.errors import UsageError
from ospbridge.text import LINE


def test_plain_tables_align_and_have_no_trailing_blanks() -> None:
    lines = plain_lines((Column("N", right=True), Column("NAME")), [("1", "long name"), ("22", "x")])
    assert lines == [" N  NAME", " 1  long name", "22  x"]


def test_control_characters_of_a_simulator_do_not_reach_the_terminal() -> None:
    assert plain_lines((Column("NAME"),), [("\x1b[2Jevil\n",)])[1] == r"\x1b[2Jevil\n"


def test_a_long_name_makes_no_wide_table_and_stands_beside_sentences_that_are_whole() -> None:
    columns = (Column("NAME"), Column("TYPE"), Column("FOUND", most=LINE))
    lines = plain_lines(columns, [("A" * 40_000, "字" * 40_000, "found " * 300), ("robot1", "robot", "ok")])
    assert all(len(line.encode()) < 4000 for line in lines)
    assert lines[1].endswith("found " * 299 + "found")
    assert " characters ... AAA" in lines[1]


def test_nor_do_they_by_an_error() -> None:
    @click.command()
    def fails() -> None:
        raise UsageError("no e\x1b[2J\nhere", hint="e\x1b]0;owned\x07")

    group = LazyGroup(places={"fails": CommandPlace(__name__, "fails", "")})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "fails", fails, raising=False)
        result = CliRunner().invoke(group, ["fails"])
    assert result.exit_code == 2
    assert result.stderr == "Error: no e\\x1b[2J here\nHint: e\\x1b]0;owned\\x07\n"
