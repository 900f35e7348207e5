"""Where hubs and a user's own files are, whatever the environment says."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ospbridge.diagnosis.checks import State
from ospbridge.diagnosis.places import check_state_directory
from ospbridge.errors import ConfigurationError
from ospbridge.observe import runtime
from ospbridge.observe.runtime import runtime_directory, state_directory
from ospbridge.service.scope import Scope

VARIABLES: dict[str, Callable[[], Path]] = {
    "XDG_RUNTIME_DIR": runtime_directory,
    "XDG_STATE_HOME": state_directory,
    "XDG_CONFIG_HOME": lambda: Scope(user=True).configuration,
}


@pytest.mark.parametrize("relative", ["", "run", "./run", "~/run"])
@pytest.mark.parametrize("variable", VARIABLES)
def test_what_the_environment_names_counts_unless_it_would_be_another_for_each_program(
    variable: str, relative: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert VARIABLES[variable]() == tmp_path / "ospbridge"
    monkeypatch.delenv(variable)
    default = VARIABLES[variable]()
    assert default.is_absolute()
    monkeypatch.setenv(variable, relative)
    assert VARIABLES[variable]() == default


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


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The hub of this user, and that of the system's service; neither is there."""
    own, service = tmp_path / "own", tmp_path / "service"
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(own))
    monkeypatch.setattr(runtime, "SERVICE", service)
    for directory in (own, service):
        directory.mkdir()
    return own / "hub.sock", service / "hub.sock"


@pytest.mark.parametrize("entered", [True, False], ids=["entered", "not entered"])
def test_the_hub_of_the_service_is_found_where_the_user_has_none(
    places: tuple[Path, Path], entered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, service = places
    look = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        if path == service:
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path, **how)

    assert runtime.found_hub() == own
    service.touch()
    if not entered:
        # Root may enter everything, so the mode of the directory would not do.
        monkeypatch.setattr(Path, "stat", stat)
    assert runtime.found_hub() == service
    own.touch()
    assert runtime.found_hub() == own


def test_a_daemon_listens_at_its_own_place_whatever_the_service_does(places: tuple[Path, Path]) -> None:
    own, service = places
    service.touch()
    assert runtime.default_hub() == own
    assert runtime.default_hub("left") == own.with_name("hub-left.sock")
