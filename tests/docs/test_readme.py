"""The README's tables: the commands that there are, the packages in their layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import click

import ospbridge
from ospbridge.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def rows(header: str) -> list[list[str]]:
    """The cells of the table with that first line."""
    lines = README.split(header + "\n", 1)[1].splitlines()[1:]
    table = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").replace("\\|", "/").split(" | ")] for line in table]


def commands(group: click.Group, path: str = "") -> set[str]:
    """Every command that does something, by its words."""
    context = click.Context(group)
    found = set()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            found |= commands(command, f"{path}{name} ")
        else:
            found.add(f"{path}{name}")
    return found


def test_every_command_stands_in_the_readme_and_nothing_else() -> None:
    told = set()
    for cell, _ in rows("| command | what it does |"):
        words = cell.strip("`").removeprefix("ospbridge ").split()
        groups = [word for word in words if word.islower() and not word.startswith("-")]
        *path, last = groups
        told |= {" ".join([*path, each]) for each in last.split("/")}
    assert told == commands(main)


def test_the_layout_is_that_of_the_contract_and_of_the_package() -> None:
    layout = {
        int(floor): set(re.findall(r"`(\w+)`", rooms))
        for floor, rooms, _ in rows("| layer | packages of `ospbridge/` | what they do |")
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (floors,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "floors"]
    rooms = {path.parent.name for path in Path(ospbridge.__path__[0]).glob("*/__init__.py")}
    singles = {"counts", "errors", "finite", "interface", "replacing"}
    contract = {
        floor: set(re.findall(r"\w+", layer)) & (rooms | singles)
        for floor, layer in enumerate(reversed(floors["layers"]))
    }
    assert layout == contract
    assert set().union(*layout.values()) == rooms | singles
