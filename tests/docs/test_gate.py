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
