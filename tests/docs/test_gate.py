"""The gate runs what README and CONTRIBUTING say, and names tests that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOX = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["tox"]


def words(value: Any) -> list[str]:
    """All texts in a setting of tox."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [word for each in value for word in words(each)]
    return [str(value)]


@pytest.mark.parametrize("name", TOX["env"])
def test_an_environment_says_what_it_is_and_names_tests_that_there_are(name: str) -> None:
    environment = TOX["env"][name]
    assert environment["description"]
    commands = words(environment["commands"])
    files = [word for word in commands if word.startswith("tests/")]
    modules = [word.replace(".", "/") for word in commands if word.startswith("tests.")]
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert [
        at for at in modules if not ((ROOT / f"{at}.py").is_file() or (ROOT / at / "__main__.py").is_file())
    ] == []


def test_the_first_environment_runs_what_the_readme_tells_newcomers_to() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    told = [
        re.search(rf"<!-- {mark} -->\n```sh\n(.+)\n```", readme)[1]  # type: ignore[index]
        for mark in ("run-command", "test-command")
    ]
    extras = re.search(r"'\.\[(\w+)\]'", told[1])
    assert extras is not None
    assert TOX["env_run_base"]["extras"] == [extras[1]]
    run = [" ".join(words(command)[: len(command)]) for command in TOX["env"]["py311"]["commands"]]
    assert told[0].rpartition(".venv/bin/")[2] == run[0]
    assert told[1].rpartition(".venv/bin/")[2] == run[1].removesuffix(" posargs")


def test_every_environment_of_the_gate_is_told_to_contributors() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert [name for name in TOX["env_list"] if f"`{name}`" not in told] == []
    assert [name for name in TOX["env"] if name not in TOX["env_list"] and not name.startswith("long-")] == []


# --- the map of promises names pages and tests that there are -------------------------------------------------------


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
