"""Files of episodes: each is whole and on disk, on whatever file system."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.collecting import EpisodeCollector, at_once
from ospbridge.record.episode import read_episode
from ospbridge.record.reading import recorded_files
from ospbridge.record.writing import EpisodeWriter
from tests.record.episodes import feedback, whose

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.record.episode import RecordedEpisode


def episode() -> RecordedEpisode:
    found: list[RecordedEpisode] = []
    collector = EpisodeCollector(whose(), at_once(found.append))
    collector.begin(feedback(0.0))
    collector.step([0.5], feedback(1.0, terminated=True))
    return found[0]


def refusing(monkeypatch: pytest.MonkeyPatch, number: int) -> list[int]:
    """Directories cannot be brought to disk; how often that was asked for."""
    fsync, asked = os.fsync, [0]

    def failing(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            asked[0] += 1
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    return asked


KILLED = """
import os, signal, sys
from unittest import mock
from ospbridge.record.writing import EpisodeWriter
from tests.record.test_writing import episode

def half(file, _):
    file.write(bytes(100_000))
    os.kill(os.getpid(), signal.SIGKILL)

with mock.patch("ospbridge.record.writing.write_episode", half):
    EpisodeWriter(sys.argv[1]).write(episode())
"""


def test_nothing_stays_of_a_file_that_its_process_was_killed_over(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert not list(tmp_path.iterdir())


def test_a_file_may_be_read_by_whom_any_other_of_this_user_may(tmp_path: Path) -> None:
    EpisodeWriter(tmp_path).write(episode())
    (tmp_path / "other").touch()
    (file,) = recorded_files(tmp_path)
    assert file.stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("way", ["open", "link"])
def test_a_file_system_without_nameless_files_is_written_to_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    opens = os.open

    def refused(path: Any, flags: int = 0, *rest: Any, **more: Any) -> Any:
        if way == "link" or flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        return opens(path, flags, *rest, **more)

    monkeypatch.setattr(os, way, refused)
    writer = EpisodeWriter(tmp_path)
    writer.write(episode())
    assert [file.name for file in recorded_files(tmp_path)] == [file.name for file in tmp_path.iterdir()]
    assert len(read_episode(recorded_files(tmp_path)[0])) == 1


def test_a_file_system_that_brings_no_directory_to_disk_is_written_to_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refusing(monkeypatch, errno.ENOTSUP)
    writer = EpisodeWriter(tmp_path)
    writer.write(episode())
    writer.write(episode())
    assert len(recorded_files(tmp_path)) == writer.written == 2
    assert asked == [2]


def test_a_directory_that_the_disk_refuses_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing(monkeypatch, errno.EIO)
    writer = EpisodeWriter(tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        writer.write(episode())
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
