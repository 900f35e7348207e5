"""Files of episodes: each is whole and on disk, on whatever file system."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.record.collecting import EpisodeCollector, at_once
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


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_brings_no_directory_to_disk_is_written_to_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    asked = refusing(monkeypatch, number)
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


def test_many_files_are_brought_to_disk_with_one_look_at_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = refusing(monkeypatch, errno.EINVAL)
    writer = EpisodeWriter(tmp_path)
    for _ in range(5):
        writer.put(episode())
    writer.settle()
    writer.settle()
    assert len(recorded_files(tmp_path)) == 5
    assert asked == [1]
