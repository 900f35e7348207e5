"""The rooms of the page and of its picture are those of the import contract."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8")
SVG = "{http://www.w3.org/2000/svg}"


def contract() -> dict[int, set[str]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (floors,) = [each for each in project["tool"]["importlinter"]["contracts"] if each["id"] == "floors"]
    return {floor: set(re.findall(r"\w+", layer)) for floor, layer in enumerate(reversed(floors["layers"]))}


def test_the_table_has_every_room_on_its_floor() -> None:
    told: dict[int, set[str]] = {}
    for floor, rooms in re.findall(r"^\| (\d) \| (.+?) \|", PAGE, re.MULTILINE):
        told.setdefault(int(floor), set()).update(re.findall(r"`(\w+)`", rooms))
    assert told == contract()


def test_the_picture_has_every_room_on_its_floor() -> None:
    (name,) = re.findall(r"\]\(\.\./(pictures/\w+\.svg)\)", PAGE)
    drawn: dict[int, set[str]] = {}
    for group in ET.parse(ROOT / "docs" / name).iter(f"{SVG}g"):
        if (floor := group.get("id", "")).startswith("floor-"):
            rooms = {text.text for text in group.iter(f"{SVG}text") if "room-name" in text.get("class", "")}
            drawn[int(floor.removeprefix("floor-"))] = {room or "" for room in rooms}
    assert drawn == contract()


def test_the_picture_loads_nothing_and_is_described() -> None:
    text = (ROOT / "docs" / "pictures" / "architecture.svg").read_text("utf-8")
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<title" in text
    assert "<desc" in text
