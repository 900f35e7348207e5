"""SIGHUP: what a running daemon takes over from a configuration that changed, and what it does not."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.cli.programs import WITHIN, until
from tests.daemon.running import PROGRAM, Daemon

pytestmark = pytest.mark.loopback


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT) as running:
        yield running


def hang_up(daemon: Daemon, event: str) -> dict[str, Any]:
    """The line that it answers with."""
    before = len(daemon.lines(event))
    daemon.process.send_signal(signal.SIGHUP)
    until(lambda: daemon.process.poll() is not None or len(daemon.lines(event)) > before)
    assert daemon.process.poll() is None, daemon.log.read_text()
    return daemon.lines(event)[-1]


def test_what_a_running_daemon_takes_over_and_what_needs_a_restart(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    file = tmp_path / "osp.toml"
    rest = f'[[simulator]]\naddress = "{simulator.address}"\n'
    file.write_text(rest)
    with Daemon(None, "--config", str(file), directory=tmp_path, level=()) as daemon:
        line = hang_up(daemon, "configuration read again")
        assert (line["taken_over"], line["needs_restart"]) == ([], [])
        file.write_text('[daemon]\nlog_level = "debug"\n' + rest + "quorum = 3\n")
        for taken in (["daemon.log_level"], []):
            line = hang_up(daemon, "configuration read again")
            assert (line["taken_over"], line["needs_restart"]) == (taken, ["simulator[0].quorum"])
        # A file with mistakes changes nothing.
        for text, mistake in (
            ("[[simulator]]\nagents = 3\n", "simulator[0].agents"),
            ('[daemon]\ndashboard = "8464"\ndashboard_token = "nowhere"\n', "token cannot be read"),
        ):
            file.write_text(text)
            assert mistake in hang_up(daemon, "the old configuration stays")["reason"]
        assert daemon.status().ready
        assert daemon.end() == 0
        assert daemon.lines("left")


def test_another_way_to_launch_needs_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    written = '[[simulator]]\nscenario = "cartpole"\n[simulator.launch]\ncommand = "scenario"\n'
    file.write_text(written)
    with Daemon(None, "--config", str(file), directory=tmp_path, level=()) as daemon:
        file.write_text(f"{written}batch = false\n")
        line = hang_up(daemon, "configuration read again")
        assert line["needs_restart"] == ["simulator[0].launch"]
        launched = daemon.status().launched
        assert launched is not None
        assert launched.restarts == 0
        assert launched.pid is not None


def test_a_terminal_that_is_closed_ends_the_daemon(simulator: UdpSimulator, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*PROGRAM, "connect", "--simulator", str(simulator.address), "--log-json"],
            stdin=theirs,
            stderr=errors,
        )
    os.close(theirs)
    try:
        until(lambda: process.poll() is not None or '"joined"' in log.read_text())
        process.send_signal(signal.SIGHUP)
        assert process.wait(WITHIN) == 0
    finally:
        process.kill()
        process.wait(WITHIN)
        os.close(ours)
    assert '"signal":"SIGHUP"' in log.read_text()
