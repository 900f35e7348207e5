"""`ospbridge top`: what it shows of a daemon, once and live."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.cli.top_screen import Screen
from ospbridge.hub.status import (
    STEP_BOUNDS,
    AgentStatus,
    DatagramCounts,
    RecordingStatus,
    SpoolStatus,
    StatusReply,
    StepTimes,
    UpstreamStatus,
)
from ospbridge.observe.runtime import default_hub
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import WITHIN, until
from tests.daemon.running import PROGRAM, Daemon

STATUS = StatusReply(
    ready=True,
    simulator="127.0.0.1:45454",
    connection="joined",
    profile="nerd",
    agents=[
        AgentStatus("walker", "playing", "train.py (pid 7)", 12, 3, [1.0, 2.0, 4.0], [5, 5, 5]),
        AgentStatus("[b]od\x1bd", "free"),
    ],
    steps=100,
    resets=4,
    rebuilds=2,
    uptime=3723.0,
    version="1",
    pid=77,
    recording=RecordingStatus("/data", 3, 1),
    upstreams=[
        UpstreamStatus("10.0.0.1:5556", "drive", dialect="json", weights_seq_no=9, batches=2, steps=1000),
        UpstreamStatus("10.0.0.2:5557", "observe", "nobody listens", spool=SpoolStatus("/s", 5, 4096)),
    ],
    datagrams=DatagramCounts({"GET_VALUE": 10}, {"VALUE": 9}, 3),
    rebuilds_by_reason={"SessionEvicted": 2},
    clients=1,
)


def later(**changes: Any) -> StatusReply:
    return msgspec.structs.replace(STATUS, **changes)


def test_everything_of_a_daemon_is_shown() -> None:
    screen = Screen()
    screen.look("unix:/hub", STATUS, 0.0)
    counts = [0] * (len(STEP_BOUNDS) + 1)
    counts[STEP_BOUNDS.index(1e-3)] = 50
    screen.look("unix:/hub", later(steps=150, step_times=StepTimes(tuple(counts), 0.04)), 1.0)
    text = screen.text()
    for said in (
        "127.0.0.1:45454  joined (nerd)  up 1:02:03, pid 77, ospbridge 1, unix:/hub",
        "steps/s 50.0 50.0 50.0 (1, 10, 60 s)",
        "a step takes 750 us, 99 % at most 995 us",
        "150 steps, 4 resets",
        "3 asked again   2 rebuilds (SessionEvicted 2)   1 at the hub",
        "recording /data: 3 episodes, 1 dropped",
        "drive 10.0.0.1:5556  connected (json)  weights 9, 2 batches of 1,000 steps learned",
        "observe 10.0.0.2:5557  nobody listens  0 steps delivered, 5 episodes wait (4,096 bytes), 0 dropped",
        "[b]od\\x1bd",
    ):
        assert said in text, text
    (walker,) = [line for line in text.splitlines() if line.startswith(" walker")]
    assert walker.split() == [
        "walker", "playing", "train.py", "(pid", "7)", "12", "3", "4", "2.333", "▁▃█",
    ]  # fmt: skip


def test_long_names_and_troubles_make_no_long_lines() -> None:
    long = "\x1b\u202e" + "A" * 40_000
    screen = Screen()
    agents = [AgentStatus(long, "playing", long) for _ in range(3)]
    upstreams = [UpstreamStatus("10.0.0.1:5556", "drive", long)]
    screen.look("unix:/hub", later(agents=agents, connection=long, ready=False, upstreams=upstreams), 0.0)
    lines = screen.text().splitlines()
    assert all(len(line.encode()) < 4000 and line.isprintable() for line in lines)
    assert len([line for line in lines if " characters ..." in line]) >= 5


@pytest.mark.loopback
def test_it_goes_on_while_the_daemon_is_away_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=DOCUMENT) as simulator,
        Daemon(simulator.address, directory=tmp_path) as daemon,
    ):
        process = subprocess.Popen(
            [*PROGRAM, "top", "--interval", "0.1"],
            stdin=theirs,
            stdout=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"},
        )
        os.close(theirs)
        try:
            shown_until(ours, b"joined")
            assert daemon.end() == 0
            shown_until(ours, b"hub.sock")
            with Daemon(simulator.address, directory=tmp_path):
                shown_until(ours, b"joined")
                process.send_signal(signal.SIGINT)
                assert process.wait(WITHIN) == 0
                shown_once_beside_a_hub_that_a_killed_daemon_left()
        finally:
            process.kill()
            process.wait(WITHIN)
            os.close(ours)


def shown_once_beside_a_hub_that_a_killed_daemon_left() -> None:
    """Where no terminal is, it looks once."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(default_hub("dead")))
    result = CliRunner().invoke(main, ["top", "--interval", "0.2"])
    assert result.exit_code == 0, result.output
    assert re.search(r"^127\.0\.0\.1:\d+  joined \(document\)  up 0:00:", result.stdout, re.MULTILINE)
    assert "steps/s 0.0 0.0 0.0" in result.stdout
    assert len(re.findall(r"^ agent\d +free", result.stdout, re.MULTILINE)) == 2


def shown_until(terminal: int, what: bytes) -> None:
    """Reads until the screen, drawn anew, shows it."""
    os.set_blocking(terminal, False)
    shown = b""

    def seen() -> bool:
        nonlocal shown
        with suppress(BlockingIOError):
            shown += os.read(terminal, 65536)
        return what in shown

    until(seen)


@pytest.mark.parametrize("command", ["top", "status"])
def test_without_a_daemon_the_hint_names_the_option(command: str, runtime_directory: Path) -> None:
    result = CliRunner().invoke(main, [command])
    assert result.exit_code == 69
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"Error: no daemon listens at {runtime_directory}")
    assert hint == "Hint: start it with `ospbridge connect`, or name it with --hub unix:PATH"
