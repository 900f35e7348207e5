"""Files that are placed once, replaced by newer ones, and not where somebody has changed them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.service.placing import PlacedFile


def test_directories_that_are_made_can_be_entered_whatever_the_umask(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    before = os.umask(0o077)
    try:
        PlacedFile(tmp_path / "there" / "one" / "two" / "a", "", directories=0o755).write()
        PlacedFile(tmp_path / "mine" / "a", "").write()
    finally:
        os.umask(before)
    modes = {
        name: (tmp_path / name).stat().st_mode & 0o777
        for name in ("there", "there/one", "there/one/two", "mine")
    }
    assert modes == {"there": 0o700, "there/one": 0o755, "there/one/two": 0o755, "mine": 0o700}


def test_a_place_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written: File exists"):
        PlacedFile(tmp_path / "file" / "a.service", "").write()
    (tmp_path / "a.service").mkdir()
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        PlacedFile(tmp_path / "a.service", "").standing()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []
