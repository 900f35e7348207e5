"""A full disk under recordings, the spool or the log: playing goes on, and so does writing once there is room."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.daemon.relay.settings import Upstream
from ospbridge.daemon.settings import Feeding
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.making import task_maker
from ospbridge.task.reading import read
from ospbridge.transport.tls import StreamAddress
from tests.daemon.running import PROGRAM, WITHIN, LocalDaemon, free_port, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

assert ospbridge.__version__
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


def play(env: gymnasium.Env[Any, Any], episodes: int) -> None:
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
        play(env, 3)
        until(lambda: "full" in _spool(daemon).trouble)
        until(lambda: _spool(daemon).unwritten == 3)
        assert _spool(daemon).dropped == 0
        filler.unlink()
        until(lambda: _spool(daemon).entries == 3)
        until(lambda: _spool(daemon).trouble == "")
        # Told to end over a full disk it ends all the same.
        fill(small_disk)
        play(env, 5)
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
