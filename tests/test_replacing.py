"""Files that are replaced as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ospbridge.replacing import replaced


def test_what_stood_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with replaced(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_leaves_nothing_behind(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail() -> None:
        with replaced(path) as file:
            file.write(b"new")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode, expected", [(None, 0o640), (0o600, 0o600), (0o666, 0o666)])
def test_it_has_the_permissions_of_any_new_file_or_those_that_are_said(
    tmp_path: Path, mode: int | None, expected: int
) -> None:
    before = os.umask(0o027)
    try:
        with replaced(tmp_path / "file", mode=mode):
            pass
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == expected
