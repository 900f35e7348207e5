"""Recordings: what is in them, when it is there, and what a crash, a disk or a full episode costs."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DiscreteSpace
from ospbridge.record.collecting import Collected, EpisodeCollector, at_once
from ospbridge.record.episode import RecordedEpisode, read_episode
from ospbridge.record.reading import read_recording, recorded_files
from ospbridge.record.writing import EpisodeWriter
from tests.record.episodes import INFOS, feedback, play, recorder_into, whose


def test_an_episode_is_on_disk_as_soon_as_it_ends_with_all_that_it_was(tmp_path: Path) -> None:
    before = datetime.now(UTC)
    recorder = recorder_into(tmp_path / "new" / "folder", whose())
    play(recorder, 3, terminated=True)
    (episode,) = read_recording(tmp_path / "new" / "folder")
    assert len(episode) == 3
    assert (episode.simulator, episode.agent, episode.seed) == ("127.0.0.1:45454", "cart", 7)
    assert (episode.how, episode.reason, episode.weights_seq_no) == ("terminated", "", None)
    assert before <= episode.started <= episode.ended <= datetime.now(UTC)
    assert episode.info_names == INFOS
    np.testing.assert_array_equal(episode.observations, np.arange(4)[:, None] + np.arange(3))
    assert episode.observations.dtype == np.float32
    np.testing.assert_array_equal(episode.actions, [1, 0, 1])
    np.testing.assert_array_equal(episode.rewards, [0.25, 0.5, 0.75])
    np.testing.assert_array_equal(episode.infos, [[0, 0], [0.25, -1], [0.5, -2], [0.75, -3]])
    assert episode.terminated.tolist() == [False, False, True]
    assert episode.truncated.tolist() == [False, False, False]
    assert isinstance(episode.action_space, DiscreteSpace)
    assert episode.action_space.n == 2
    assert np.isinf(episode.observation_space.low).all()


def test_an_episode_that_did_not_end_is_written_at_the_next_reset_and_when_closed(tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose())
    play(recorder, 2, seed=1)
    assert list(read_recording(tmp_path)) == []
    play(recorder, 0, seed=2)
    play(recorder, 4, seed=3)
    recorder.close()
    recorder.close()
    first, second = read_recording(tmp_path)
    assert (first.seed, len(first), first.how) == (1, 2, "abandoned")
    assert (second.seed, len(second), second.how) == (3, 4, "abandoned")
    # Whoever learns from it must see that nothing follows its last step.
    assert second.truncated.tolist() == [False, False, False, True]


def test_an_endless_episode_takes_bounded_memory_and_goes_on_in_the_next_file(tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose(), memory=2000)
    play(recorder, 100, truncated=True)
    parts = list(read_recording(tmp_path))
    assert len(parts) > 2
    assert {part.how for part in parts[:-1]} == {"continued"}
    assert parts[-1].how == "truncated"
    assert sum(len(part) for part in parts) == 100
    for part, following in pairwise(parts):
        assert part.truncated[-1]
        np.testing.assert_array_equal(part.observations[-1], following.observations[0])
        np.testing.assert_array_equal(part.infos[-1], following.infos[0])
    together = np.concatenate([parts[0].observations, *(part.observations[1:] for part in parts[1:])])
    np.testing.assert_array_equal(together[:, 0], np.arange(101))


@pytest.mark.parametrize("behind, calls", [("fsync", 1), ("link", 1), ("settle", 1)])
def test_an_episode_whose_writing_ctrl_c_interrupts_is_written_all_the_same_and_once(
    behind: str, calls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_into(tmp_path, whose())
    place: Any = EpisodeWriter if behind == "settle" else os
    real = getattr(place, behind)
    left = 0

    def interrupted(*args: Any, **others: Any) -> None:
        nonlocal left
        real(*args, **others)
        left -= 1
        if not left:
            raise KeyboardInterrupt

    monkeypatch.setattr(place, behind, interrupted)
    left = calls
    with pytest.raises(KeyboardInterrupt):
        play(recorder, 2, seed=1, terminated=True)
    play(recorder, 3, seed=2)
    left = calls
    with pytest.raises(KeyboardInterrupt):
        recorder.step(0, feedback(4, seed=2, truncated=True))
    recorder.close()
    first, second = read_recording(tmp_path)
    assert (first.seed, len(first), first.how) == (1, 2, "terminated")
    assert (second.seed, len(second), second.how) == (2, 4, "truncated")


def test_recorders_of_one_directory_do_not_meet(tmp_path: Path) -> None:
    recorders = [recorder_into(tmp_path, whose(agent)) for agent in ("a b", "a_b")]
    for _ in range(5):
        for recorder in recorders:
            play(recorder, 1, terminated=True)
    episodes = list(read_recording(tmp_path))
    assert [episode.agent for episode in episodes] == ["a b", "a_b"] * 5


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_writes_nothing_of_its_parents_episode(tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose())
    play(recorder, 3)
    child = multiprocessing.get_context("fork").Process(target=recorder.close)
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert recorded_files(tmp_path) == []
    recorder.close()
    assert len(recorded_files(tmp_path)) == 1


# --- crashes and damage ----------------------------------------------------------------------------------------------

CRASHING = """
import os, sys
from tests.record.episodes import play, recorder_into, whose
recorder = recorder_into(sys.argv[1], whose())
number = 0
while True:
    number += 1
    play(recorder, 50, seed=number, terminated=True)
    print(number, flush=True)
"""


def test_after_kill_9_every_finished_episode_can_be_read(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CRASHING, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as child:
        assert child.stdout is not None
        for _ in range(5):
            assert child.stdout.readline()
        os.kill(child.pid, signal.SIGKILL)
        finished = 5 + len(child.stdout.read().split())
    seeds = [episode.seed for episode in read_recording(tmp_path)]
    # The last one may be on disk although nobody could say so any more.
    assert seeds in (list(range(1, finished + 1)), list(range(1, finished + 2)))


def test_what_a_crash_left_half_written_is_passed_over(tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose())
    play(recorder, 1, terminated=True)
    (tmp_path / ".20260101T000000.000000Z-cart-1-000001.part").write_bytes(b"PK")
    (tmp_path / ".hidden.npz").write_bytes(b"PK")
    assert len(list(read_recording(tmp_path))) == 1


@pytest.mark.parametrize("damage", ["cut", "empty", "foreign", "flipped"])
def test_a_damaged_file_is_named(damage: str, tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose())
    play(recorder, 20, terminated=True)
    (file,) = recorded_files(tmp_path)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "foreign":
        with file.open("wb") as stream:
            np.save(stream, np.zeros(3))
    else:
        content[len(content) // 3] ^= 0xFF
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match=file.name) as caught:
        list(read_recording(tmp_path))
    assert caught.value.hint


def test_a_file_of_a_later_version_is_refused_as_such(tmp_path: Path) -> None:
    recorder = recorder_into(tmp_path, whose())
    play(recorder, 1, terminated=True)
    (file,) = recorded_files(tmp_path)
    with np.load(file) as archive:
        arrays = {name: archive[name] for name in archive.files}
    later = arrays["about"].tobytes().replace(b'"version":1', b'"version":9')
    arrays["about"] = np.frombuffer(later, np.uint8)
    np.savez(file, **arrays)
    with pytest.raises(ConfigurationError, match="version 9"):
        read_episode(file)


def test_directories_that_cannot_serve_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read as a recording"):
        list(read_recording(tmp_path / "none"))
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ConfigurationError, match="cannot be recorded"):
        recorder_into(file, whose())


# --- each file is whole and on disk, on whatever file system -------------------------------------------------------


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
from tests.record.test_recorder import episode

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


# --- what a collector hands over: whole episodes, whose arrays are nobody else's ------------------------------------


def test_ctrl_c_while_a_part_is_handed_over_costs_neither_it_nor_the_rest_of_the_episode() -> None:
    found: list[RecordedEpisode] = []
    left = [KeyboardInterrupt()] * 2

    def interrupted(episode: RecordedEpisode) -> None:
        if left:
            raise left.pop()
        found.append(episode)

    collector = EpisodeCollector(whose(), at_once(interrupted), memory=20_000)
    collector.begin(feedback(0))
    steps = 0
    while steps < 1000:
        steps += 1
        with contextlib.suppress(KeyboardInterrupt):
            collector.step(steps % 2, feedback(steps))
    collector.close()
    assert not left
    assert len(found) > 2
    assert [part.t_started for part in found] == np.cumsum([0, *map(len, found)])[:-1].tolist()
    assert [part.how for part in found] == ["continued"] * (len(found) - 1) + ["abandoned"]
    together = np.concatenate([found[0].observations, *(part.observations[1:] for part in found[1:])])
    np.testing.assert_array_equal(together[:, 0], np.arange(1001))


def test_a_part_takes_no_more_than_it_may_with_the_observation_that_it_begins_with() -> None:
    found: list[Collected] = []
    collector = EpisodeCollector(whose(outputs=1000), found.append, memory=20_000)
    collector.begin(feedback(0, outputs=1000))
    for number in range(10):
        collector.step(0, feedback(number, outputs=1000))
    collector.close()
    assert [len(part) for part in found] == [3, 3, 3, 1]
    assert all(part.nbytes <= 20_000 for part in found)


def test_an_episode_is_over_although_handing_it_over_failed() -> None:
    taken: list[RecordedEpisode] = []

    def refuse_the_first(episode: RecordedEpisode) -> None:
        taken.append(episode)
        if len(taken) == 1:
            raise OSError("no room")

    collector = EpisodeCollector(whose(), at_once(refuse_the_first))
    with pytest.raises(OSError, match="no room"):
        play(collector, 300, terminated=True)
    collector.step(0, feedback(1))
    collector.close()
    assert len(taken) == 1
    play(collector, 2, terminated=True)
    assert [len(episode) for episode in taken] == [300, 2]


ARRAYS = (
    "observations",
    "actions",
    "rewards",
    "infos",
    "terminated",
    "truncated",
    "action_logp",
    "action_dist_inputs",
)


@pytest.mark.parametrize("memory", [3000, 2**20], ids=["in parts", "whole"])
@pytest.mark.parametrize("actions", [0, 2], ids=["discrete", "box"])
@pytest.mark.parametrize("together", [1, 7, 1000])
def test_how_many_steps_are_put_together_at_once_changes_nothing(
    together: int, actions: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[list[RecordedEpisode]] = [[], []]
    for taken, as_bytes in zip(found, (False, True), strict=True):
        if as_bytes:
            monkeypatch.setattr("ospbridge.record.collecting.TOGETHER", together)
        collector = EpisodeCollector(whose(actions=actions), at_once(taken.append), memory=memory)
        collector.begin(feedback(0))
        for number in range(700):
            action = np.array([number, -number], np.float32) if actions else number % 2
            one, logp, drawn = feedback(number + 1), -0.5 * number, np.array([number, -number], np.float32)
            if as_bytes:
                infos, seen = tuple(one.info["infos"].values()), one.observation.tobytes()
                given = np.float32(action).tobytes()
                collector.add((given, seen, one.reward, infos, logp, drawn.tobytes(), None))
            else:
                collector.step(action, one, logp=logp, dist_inputs=drawn)
        collector.end("lost", "enough")
    assert (len(found[0]) > 1) == (memory == 3000)
    for kept, same in zip(*found, strict=True):
        assert (kept.how, kept.t_started) == (same.how, same.t_started)
        assert kept.actions.dtype == (np.float32 if actions else np.int64)
        for name in ARRAYS:
            np.testing.assert_array_equal(getattr(kept, name), getattr(same, name))


@pytest.mark.parametrize("steps", [1, 300])
def test_an_episode_with_annotations_takes_as_much_memory_as_it_says_from_the_beginning(steps: int) -> None:
    found: list[Collected] = []
    collector = EpisodeCollector(whose(actions=2), found.append)
    collector.begin(feedback(0))
    for number in range(steps):
        collector.step(
            np.zeros(2), feedback(number), dist_inputs=np.zeros(4, np.float32), drawn=np.ones(2, np.float32)
        )
    collector.close()
    (collected,) = found
    expected = collected.nbytes
    collected.episode()
    assert collected.nbytes == expected
