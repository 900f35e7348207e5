"""Where a user's own files are, when the environment says so, says nothing, or says what cannot be."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.places import check_runtime_directory, check_state_directory
from ospbridge.errors import ConfigurationError
from ospbridge.observe.runtime import runtime_directory
from ospbridge.observe.state import state_directory
from ospbridge.service.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLES: dict[str, Callable[[], Path]] = {
    "XDG_RUNTIME_DIR": runtime_directory,
    "XDG_STATE_HOME": state_directory,
    "XDG_CONFIG_HOME": lambda: Scope(user=True).configuration,
}


@pytest.mark.parametrize("variable", VARIABLES)
def test_what_the_environment_names_counts(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert VARIABLES[variable]() == tmp_path / "ospbridge"


@pytest.mark.parametrize("relative", ["", "run", "./run", "~/run"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_a_directory_that_would_be_another_for_each_program_is_ignored(
    variable: str, relative: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    default = VARIABLES[variable]()
    assert default.is_absolute()
    monkeypatch.setenv(variable, relative)
    assert VARIABLES[variable]() == default


def test_the_doctor_says_why_a_relative_runtime_directory_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    found = check_runtime_directory()
    assert found.state is State.ADVICE
    assert f"{tmp_path}/ospbridge-{os.getuid()}" in found.detail
    assert "XDG_RUNTIME_DIR=run" in found.detail


def test_a_user_whose_home_nobody_knows_is_told_to_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        msg = "Could not determine home directory."
        raise RuntimeError(msg)

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(ConfigurationError, match="no home of user") as refused:
        state_directory()
    assert refused.value.hint == "set HOME"
    found = check_state_directory()
    assert found.state is State.PROBLEM
    assert found.fix == "set HOME"
