"""The thread that writes: what it does when the disk is slow, full, gone or stuck."""

from __future__ import annotations

import errno
import os
import threading
from stat import S_ISDIR
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from ospbridge.daemon.writing_thread import WritingThread
from ospbridge.record.collecting import Collected, EpisodeCollector
from ospbridge.record.reading import read_recording
from tests.daemon.running import until
from tests.daemon.stage import Logs
from tests.record.episodes import play, whose

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def made_up(seed: int, steps: int = 10) -> Collected:
    found: list[Collected] = []
    play(EpisodeCollector(whose(), found.append), steps, seed=seed, terminated=True)
    return found[0]


def seeds(directory: Path) -> list[int]:
    return [episode.seed for episode in read_recording(directory)]


def await_counts(thread: WritingThread, *, recorded: int, dropped: int) -> None:
    until(lambda: (thread.recorded, thread.dropped) == (recorded, dropped))


class Disk:
    """Stands in for ``os.fsync``: stuck, or without room; ``only_names``: for files it is quick."""

    def __init__(self) -> None:
        self.moves = threading.Event()
        self.moves.set()
        self.reached = threading.Event()
        self.error: Exception | None = None
        self.only_names = False

    def fsync(self, descriptor: int) -> None:
        if self.only_names and not S_ISDIR(os.fstat(descriptor).st_mode):
            return
        self.reached.set()
        assert self.moves.wait(30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    found = Disk()
    monkeypatch.setattr(os, "fsync", found.fsync)
    yield found
    found.moves.set()


def test_an_episode_counts_as_recorded_once_its_name_is_on_disk_too(tmp_path: Path, disk: Disk) -> None:
    """A crash before that may leave nothing of it."""
    disk.only_names = True
    disk.moves.clear()
    with WritingThread(tmp_path) as thread:
        thread.put(made_up(1))
        assert disk.reached.wait(20)
        assert thread.recorded == 0
        disk.moves.set()
        await_counts(thread, recorded=1, dropped=0)


def test_what_finds_no_room_in_memory_is_dropped_counted_and_said_once(tmp_path: Path, disk: Disk) -> None:
    disk.moves.clear()
    with capture_logs() as logs, WritingThread(tmp_path, largest=40_000) as thread:
        for seed in range(1, 101):
            thread.put(made_up(seed))
        dropped = thread.dropped
        assert 80 < dropped < 100
        disk.moves.set()
        await_counts(thread, recorded=100 - dropped, dropped=dropped)
        thread.put(made_up(101))
    assert (thread.recorded, thread.dropped) == (101 - dropped, dropped)
    assert seeds(tmp_path)[-1] == 101
    (line,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert line["event"] == "episodes are dropped"
    assert str(tmp_path) in line["reason"]
    assert line["hint"]
    (last,) = [entry for entry in logs if entry["event"] == "recording ended"]
    assert (last["recorded"], last["dropped"]) == (101 - dropped, dropped)


def test_a_full_disk_is_told_once_and_recording_goes_on_when_there_is_room_again(
    tmp_path: Path, disk: Disk
) -> None:
    with capture_logs() as logs, WritingThread(tmp_path) as thread:
        disk.error = OSError(errno.ENOSPC, "No space left on device")
        for seed in (1, 2, 3):
            thread.put(made_up(seed))
        await_counts(thread, recorded=0, dropped=3)
        assert list(tmp_path.iterdir()) == []
        disk.error = None
        thread.put(made_up(4))
    assert (thread.recorded, thread.dropped) == (1, 3)
    assert seeds(tmp_path) == [4]
    error, again = [entry for entry in logs if entry["event"] != "recording ended"]
    assert error["log_level"] == "error"
    assert "No space left" in error["reason"]
    assert "room on its disk" in error["hint"]
    assert (again["log_level"], again["dropped"]) == ("info", 3)


def test_a_disk_that_is_stuck_does_not_keep_the_daemon_from_ending(
    tmp_path: Path, disk: Disk, logs: Logs
) -> None:
    disk.moves.clear()
    thread = WritingThread(tmp_path)
    thread.__enter__()
    for seed in range(1, 6):
        thread.put(made_up(seed))
    assert disk.reached.wait(20)
    thread.close(0.05)
    assert thread.dropped == 5
    disk.moves.set()
    thread._thread.join(20)
    assert not thread._thread.is_alive()
    # The one that the disk was busy with may come through after all.
    assert seeds(tmp_path) == [1]
    assert "did not take them" in next(e for e in logs if e["log_level"] == "warning")["reason"]
