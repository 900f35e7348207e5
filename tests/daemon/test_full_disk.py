"""Disks that are slow, full, gone or stuck under recordings, the spool or the log: playing and writing go on."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.daemon.recording import Recording
from ospbridge.daemon.relay.link import Upstream
from ospbridge.daemon.settings import Feeding
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT
from ospbridge.record.collecting import Collected, EpisodeCollector
from ospbridge.record.reading import read_recording
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.making import task_maker
from ospbridge.task.reading import read
from ospbridge.transport.tls import StreamAddress
from tests.daemon.running import PROGRAM, WITHIN, LocalDaemon, free_port, until
from tests.daemon.stage import Logs
from tests.record.episodes import play, whose

pytestmark = pytest.mark.loopback
SIZE = 512
"""KiB of the small disk."""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}k", "ospbridge-test", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no small disk can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True, timeout=10)


@pytest.fixture
def big() -> Iterator[UdpSimulator]:
    """An episode of 20 steps is some 80 KB."""
    with UdpSimulator(SyntheticWorld(2, 1000), port=0, profile=DOCUMENT) as running:
        yield running


SHORT = task_maker(read('name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 20\n'))


def play_in(env: gymnasium.Env[Any, Any], episodes: int) -> None:
    """Of numbers that cannot be compressed."""
    random = np.random.default_rng(episodes)
    for seed in range(1, episodes + 1):
        env.reset(seed=seed)
        for number in range(20):
            *_, truncated, info = env.step(random.uniform(-1, 1, 2).astype(np.float32))
            assert truncated == (number == 19), info["reason"]


def fill(disk: Path) -> Path:
    """Leave no room for anything."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


def test_what_finds_no_room_in_the_spool_waits_in_memory_until_there_is(
    big: UdpSimulator, small_disk: Path
) -> None:
    upstream = Upstream(
        address=StreamAddress(Endpoint("127.0.0.1", free_port())),
        unannotated=True,
        spool=small_disk / "spool",
    )
    with LocalDaemon(big.address, make_task=SHORT, feedings=[Feeding(upstream)]) as daemon:
        env = gymnasium.make("ospbridge/Agent-v0")
        filler = fill(small_disk)
        play_in(env, 3)
        until(lambda: "full" in _spool(daemon).trouble)
        until(lambda: _spool(daemon).unwritten == 3)
        assert _spool(daemon).dropped == 0
        filler.unlink()
        until(lambda: _spool(daemon).entries == 3)
        until(lambda: _spool(daemon).trouble == "")
        # Told to end over a full disk it ends all the same.
        fill(small_disk)
        play_in(env, 5)
        env.close()
        assert daemon.end() == 0


def _spool(daemon: LocalDaemon) -> Any:
    (upstream,) = daemon.status().upstreams
    assert upstream.spool is not None
    return upstream.spool


def test_a_log_that_cannot_be_written_costs_its_lines_only() -> None:
    programs = {
        "connect": ("--simulator", f"127.0.0.1:{free_port()}"),
        "sim": ("--synthetic", "1,1", "--port", "0"),
        "sink": ("--listen", "127.0.0.1:0"),
    }
    with open("/dev/full", "wb") as full:  # noqa: PTH123  # a device
        processes = [
            subprocess.Popen([*PROGRAM, program, *options], stdout=subprocess.PIPE, stderr=full, text=True)
            for program, options in programs.items()
        ]
    for process in processes[1:]:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("127.0.0.1:")
    HubClient.connect(wait=WITHIN).close()
    for process in processes:
        process.terminate()
        process.communicate(timeout=WITHIN)
    assert [process.returncode for process in processes] == [0, 0, 0]


# --- the thread that writes recordings --------------------------------------------------------------------------------


def made_up(seed: int, steps: int = 10) -> Collected:
    found: list[Collected] = []
    play(EpisodeCollector(whose(), found.append), steps, seed=seed, terminated=True)
    return found[0]


def seeds(directory: Path) -> list[int]:
    return [episode.seed for episode in read_recording(directory)]


def await_counts(thread: Recording, *, recorded: int, dropped: int) -> None:
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
    with Recording(tmp_path) as thread:
        thread.put(made_up(1))
        assert disk.reached.wait(20)
        assert thread.recorded == 0
        disk.moves.set()
        await_counts(thread, recorded=1, dropped=0)


def test_what_finds_no_room_in_memory_is_dropped_counted_and_said_once(
    tmp_path: Path, disk: Disk, logs: Logs
) -> None:
    disk.moves.clear()
    with Recording(tmp_path, room=40_000) as thread:
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
    (last,) = logs.of("recording ended")
    assert (last["recorded"], last["dropped"]) == (101 - dropped, dropped)


def test_a_full_disk_is_told_once_and_recording_goes_on_when_there_is_room_again(
    tmp_path: Path, disk: Disk, logs: Logs
) -> None:
    with Recording(tmp_path) as thread:
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
    thread = Recording(tmp_path)
    thread.drain = 0.05
    thread.__enter__()
    for seed in range(1, 6):
        thread.put(made_up(seed))
    assert disk.reached.wait(20)
    thread.__exit__(None, None, None)
    assert thread.dropped == 5
    disk.moves.set()
    thread._thread.join(20)
    assert not thread._thread.is_alive()
    # The one that the disk was busy with may come through after all.
    assert seeds(tmp_path) == [1]
    assert "did not take them" in next(e for e in logs if e["log_level"] == "warning")["reason"]
