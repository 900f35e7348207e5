"""The page on measuring: its commands run, its subcommands and columns are those of the code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ospbridge.bench.figures import QUANTITIES
from ospbridge.bench.hub import COUNTS as AGENTS_OF_A_HUB
from ospbridge.bench.hub import DAEMON
from ospbridge.bench.subjects import FLOORS, SUBJECTS
from ospbridge.bench.vectors import QUANTITIES_OF_MANY
from ospbridge.cli import main
from ospbridge.cli.bench import bench

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "measure.md").read_text()
COMMANDS = re.findall(r"^ospbridge .*$", PAGE, re.MULTILINE)
QUICK = {"step": "10", "agents": "10", "fleet": "10", "hub": "10"}
"""Steps that are enough to see that a command runs."""


def first_cells(header: str) -> list[str]:
    """What stands in the first column of the table with that first line."""
    lines = PAGE.split(header + "\n", 1)[1].splitlines()[1:]
    table = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [line.split(" | ")[0].strip("| ") for line in table]


def test_every_subcommand_is_told() -> None:
    assert {cell.strip("`") for cell in first_cells("| subcommand | measures |")} == set(bench.commands)


def test_every_column_is_told_with_its_place_in_json() -> None:
    told = " ".join(first_cells("| column | JSON | meaning |"))
    for quantity in (*QUANTITIES, DAEMON):
        assert f"`{quantity.title}`" in told
        assert f"`{quantity.key}`" in PAGE
    for quantity in QUANTITIES_OF_MANY[len(QUANTITIES) :]:
        assert f"`{quantity.title.removeprefix('P50 us ')}`" in PAGE


def test_its_names_are_those_of_the_code() -> None:
    assert "direct environment, never spinning" in SUBJECTS
    for floor in FLOORS:
        assert f"The {floor}" in PAGE
    assert f"1 to {max(AGENTS_OF_A_HUB)} environments" in PAGE


def test_its_options_are_those_of_the_commands() -> None:
    options = {
        option
        for command in bench.commands.values()
        for each in command.params
        if isinstance(each, click.Option)
        for option in each.opts
    }
    assert set(re.findall(r"(?<![\w-])(--[a-z]+)", PAGE)) <= options


@pytest.mark.loopback
@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", [command for command in COMMANDS if " all " not in command])
def test_its_commands_run(command: str) -> None:
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(main, [*words, "--runs", "1", "--steps", QUICK[words[1]]])
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("WAY")
