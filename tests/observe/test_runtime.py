"""Where hubs are looked for."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ospbridge.observe import runtime

if TYPE_CHECKING:
    import os


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The hub of this user, and that of the system's service; neither is there."""
    own, service = tmp_path / "own", tmp_path / "service"
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(own))
    monkeypatch.setattr(runtime, "SERVICE", service)
    for directory in (own, service):
        directory.mkdir()
    return own / "hub.sock", service / "hub.sock"


def test_the_hub_of_the_service_is_found_where_the_user_has_none(places: tuple[Path, Path]) -> None:
    own, service = places
    assert runtime.found_hub() == own
    service.touch()
    assert runtime.found_hub() == service
    own.touch()
    assert runtime.found_hub() == own


def test_a_service_that_this_user_may_not_enter_is_named_all_the_same(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, service = places
    look = Path.stat

    def stat(path: Path, **how: bool) -> os.stat_result:
        if path == service:
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path, **how)

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
