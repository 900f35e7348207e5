"""The map of promises names pages and tests that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "tests" / "PROMISES.md").read_text("utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| promise |")
]
ENVIRONMENTS = (
    tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8")).get("tool", {}).get("tox", {}).get("env", {})
)


def missing(guard: str) -> str | None:
    """What the guard names that is not there: `tests/FILE.py::TEST`, `tests/FILE.py`, or `tox: NAME`."""
    if guard.startswith("tox: "):
        return None if guard.removeprefix("tox: ") in ENVIRONMENTS else guard
    file, _, test = guard.partition("::")
    if not (ROOT / file).is_file():
        return file
    found = not test or re.search(
        rf"^\s*(?:async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE
    )
    return None if found else guard


def test_every_promise_names_its_page_and_a_test_that_is_there() -> None:
    wrong: list[str] = []
    for row in ROWS:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip()[1:-1])]
        if len(cells) != 3 or not all(cells):
            wrong.append(f"not three cells: {row}")
            continue
        pages, guards = re.findall(r"`([^`]+)`", cells[1]), re.findall(r"`([^`]+)`", cells[2])
        wrong += [f"names no page or no test: {row}"] * (not pages or not guards)
        wrong += [f"no such page: {page}" for page in pages if not (ROOT / page).is_file()]
        wrong += [f"no such test: {gone}" for guard in guards if (gone := missing(guard)) is not None]
    assert wrong == []
