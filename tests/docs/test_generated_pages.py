"""The pages that follow from the code are as the code is now; `python -m docs.generate` renews them."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from docs import generate
from docs.generation import commands, events, exits, library
from docs.generation.public import SECTIONS
from ospbridge import errors
from ospbridge.__main__ import HELP
from ospbridge.errors import OspBridgeError

EXITS = (generate.DOCS / "reference/exit-codes.md").read_text("utf-8")
EVENTS = (generate.DOCS / "reference/log-events.md").read_text("utf-8")


@pytest.mark.parametrize("name", generate.PAGES)
def test_a_page_is_as_it_would_be_written_now(name: str) -> None:
    there = (generate.DOCS / name).read_text("utf-8")
    assert there == generate.PAGES[name](there), "run `python -m docs.generate`, and commit what it wrote"


def test_the_list_of_commands_that_is_known_beforehand_is_as_click_has_it_now() -> None:
    assert Path(HELP).read_text("ascii") == generate.help_page(), "run `python -m docs.generate`"


# --- commands -------------------------------------------------------------------------------------------------------


def test_every_variable_with_a_name_of_its_own_is_told() -> None:
    assert commands.variables_read() == set(commands.ENVIRONMENT)


# --- exit codes -----------------------------------------------------------------------------------------------------


def test_every_code_of_an_error_is_told_and_every_error_once() -> None:
    kinds = {
        name: getattr(errors, name)
        for name in errors.__all__
        if name not in ("OspBridgeError", "ProtocolError", "FileInvalid")
    }
    told: dict[str, int] = {}
    for code, section in re.findall(r"^## (\d+): .*?\n(.*?)(?=^## |\Z)", EXITS, re.MULTILINE | re.DOTALL):
        for name in re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE):
            assert name not in told
            told[name] = int(code)
    assert told == {name: kind.exit_code for name, kind in kinds.items()}
    assert all(issubclass(kind, OspBridgeError) for kind in kinds.values())
    assert set(told.values()) <= set(exits.CODES)


# --- log events -----------------------------------------------------------------------------------------------------


def test_every_event_is_told_with_what_it_means() -> None:
    told = events.meanings(EVENTS)
    assert set(told) == set(events.events())
    assert [key for key, meaning in told.items() if not meaning] == []


# --- the Python library ---------------------------------------------------------------------------------------------


def test_what_the_library_lists_is_public_where_it_is_defined() -> None:
    """Modules whose extra is not installed say so in words."""
    for section in SECTIONS:
        for listed in section.listed:
            try:
                module = importlib.import_module(listed.module)
            except errors.ConfigurationError as error:
                assert "pip install" in error.hint  # noqa: PT017  # where it can be imported is looked at below
                continue
            assert listed.name in getattr(module, "__all__", vars(module)), listed.path


def test_all_of_the_library_is_documented_and_each_error_it_names_is_one() -> None:
    told = dict(library.documented())
    fields = {path for path in told if path.rpartition(".")[0] in told}
    assert [path for path, text in told.items() if not text and path not in fields] == []
    named = {name for text in told.values() for name in re.findall(r"Raises ([A-Z]\w+)", text)}
    assert len(named) > 8
    assert named - {"ValueError"} <= set(errors.__all__)


def test_the_documentation_imports_nothing_that_the_library_does_not_list() -> None:
    listed = {each.path for section in SECTIONS for each in section.listed}
    found = set()
    for path in [*generate.DOCS.rglob("*.md"), generate.DOCS.parent / "README.md"]:
        text = path.read_text("utf-8")
        for module, names in re.findall(r"^from (ospbridge[\w.]+) import ([\w, ]+)$", text, re.MULTILINE):
            found |= {f"{module}.{name.strip()}" for name in names.split(",")}
    assert len(found) > 10
    assert {path for path in found if not path.startswith("ospbridge.errors.")} <= listed
