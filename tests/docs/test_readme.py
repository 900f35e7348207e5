"""The README's commands and tables, and the architecture's: what there is, in its layers."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import click

import ospbridge
from docs.generation.commands import walk
from tests.docs.pages import DOCS, ROOT, page

README = (ROOT / "README.md").read_text("utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def rows(header: str) -> list[list[str]]:
    """The cells of the table with that first line."""
    lines = README.split(header + "\n", 1)[1].splitlines()[1:]
    table = lines[: next(at for at, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").replace("\\|", "/").split(" | ")] for line in table]


def test_its_two_commands_stand_behind_their_marks() -> None:
    """The gate and strangers run what stands there."""
    found = dict(re.findall(r"<!-- (\w+)-command -->\n```sh\n(.*?)```", README, re.DOTALL))
    made = "python3 -m venv .venv && .venv/bin/pip install "
    assert found == {
        "run": f"{made}. && .venv/bin/ospbridge demo\n",
        "test": f"{made}'.[test]' && .venv/bin/python -m pytest\n",
    }


def test_every_command_stands_in_the_readme_and_nothing_else() -> None:
    told = set()
    for cell, _ in rows("| command | what it does |"):
        words = cell.strip("`").removeprefix("ospbridge ").split()
        *path, last = [word for word in words if word.islower() and not word.startswith("-")]
        told |= {" ".join([*path, each]) for each in last.split("/")}
    there = {path.partition(" ")[2] for path, command, _ in walk() if not isinstance(command, click.Group)}
    assert told == there


def contract() -> dict[int, set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (floors,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "floors"]
    return {floor: set(re.findall(r"\w+", layer)) for floor, layer in enumerate(reversed(floors["layers"]))}


def test_the_layout_is_that_of_the_contract_and_of_the_package() -> None:
    layout = {
        int(floor): set(re.findall(r"`(\w+)`", rooms))
        for floor, rooms, _ in rows("| layer | packages of `ospbridge/` | what they do |")
    }
    packages = {path.parent.name for path in Path(ospbridge.__path__[0]).glob("*/__init__.py")}
    there = packages | layout[0]
    assert layout == {floor: names & there for floor, names in contract().items()}
    assert packages <= set().union(*layout.values())


def test_the_architecture_and_its_picture_have_every_package_on_its_floor() -> None:
    text = page("explanation/architecture")
    told: dict[int, set[str]] = {}
    for floor, rooms in re.findall(r"^\| (\d) \| (.+?) \|", text, re.MULTILINE):
        told.setdefault(int(floor), set()).update(re.findall(r"`(\w+)`", rooms))
    (name,) = re.findall(r"\]\(\.\./(pictures/\w+\.svg)\)", text)
    drawn: dict[int, set[str]] = {}
    for group in ET.parse(DOCS / name).iter(f"{SVG}g"):
        if (floor := group.get("id", "")).startswith("floor-"):
            rooms = {each.text for each in group.iter(f"{SVG}text") if "room-name" in each.get("class", "")}
            drawn[int(floor.removeprefix("floor-"))] = {room or "" for room in rooms}
    assert told == drawn == contract()
