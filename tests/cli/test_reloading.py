"""SIGHUP: what a running daemon takes over from a configuration that changed, and what it does not."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.osp.profile import DOCUMENT
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.certificates import Authority
from tests.daemon.running import PROGRAM, Daemon
from tests.daemon.test_tls import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.loopback


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT) as running:
        yield running


def hang_up(daemon: Daemon, event: str) -> dict[str, Any]:
    """The line that it answers with."""
    before = len(daemon.lines(event))
    daemon.process.send_signal(signal.SIGHUP)
    give_up = time.monotonic() + 20
    while len(daemon.lines(event)) == before:
        assert daemon.process.poll() is None, daemon.log.read_text()
        assert time.monotonic() < give_up, daemon.log.read_text()
        time.sleep(0.02)
    return daemon.lines(event)[-1]


def test_the_level_of_the_log_is_taken_over_and_what_needs_a_restart_is_named(
    simulator: UdpSimulator, tmp_path: Path
) -> None:
    file = tmp_path / "osp.toml"
    rest = f'[[simulator]]\naddress = "{simulator.address}"\n'
    file.write_text(rest)
    with Daemon(None, "--config", str(file), directory=tmp_path, level=()) as daemon:
        line = hang_up(daemon, "configuration read again")
        assert (line["taken_over"], line["needs_restart"]) == ([], [])
        file.write_text('[daemon]\nlog_level = "debug"\n' + rest + "quorum = 3\n")
        for _ in range(2):
            line = hang_up(daemon, "configuration read again")
            assert line["needs_restart"] == ["simulator[0].quorum"]
        assert daemon.end() == 0
        assert daemon.lines("left")
    (taken, *later) = [line["taken_over"] for line in daemon.lines("configuration read again")[1:]]
    assert (taken, later) == (["daemon.log_level"], [[]])


def test_a_file_with_mistakes_changes_nothing(simulator: UdpSimulator, tmp_path: Path) -> None:
    file = tmp_path / "osp.toml"
    file.write_text(f'[[simulator]]\naddress = "{simulator.address}"\n')
    with Daemon(None, "--config", str(file), directory=tmp_path) as daemon:
        file.write_text("[[simulator]]\nagents = 3\n")
        line = hang_up(daemon, "the old configuration stays")
        assert "simulator[0].agents" in line["reason"]
        file.write_text('[daemon]\ndashboard = "8464"\ndashboard_token = "nowhere"\n')
        line = hang_up(daemon, "the old configuration stays")
        assert "token cannot be read" in line["reason"]
        assert daemon.status().ready
        assert daemon.end() == 0


def test_a_terminal_that_is_closed_ends_the_daemon(simulator: UdpSimulator, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*PROGRAM, "connect", "--simulator", str(simulator.address), "--log-json"],
            stdin=theirs,
            stderr=log,
        )
    os.close(theirs)
    try:
        give_up = time.monotonic() + 20
        while '"joined"' not in (tmp_path / "log").read_text():
            assert time.monotonic() < give_up
            time.sleep(0.02)
        process.send_signal(signal.SIGHUP)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
    assert '"signal":"SIGHUP"' in (tmp_path / "log").read_text()


def test_certificates_that_were_renewed_are_read_again(simulator: UdpSimulator, tmp_path: Path) -> None:
    old, new = (Authority(tmp_path, name) for name in ("old", "new"))
    files = old.issue("daemon")
    with listening(simulator, tmp_path, files) as (daemon, bridge):
        HubClient.connect(bridge, tls=old.issue("environment")).close()
        renewed = new.issue("renewed")
        for mine, theirs in ((files.cert, renewed.cert), (files.key, renewed.key), (files.ca, renewed.ca)):
            mine.write_bytes(theirs.read_bytes())
        hang_up(daemon, "configuration read again")
        HubClient.connect(bridge, tls=new.issue("environment")).close()
        files.cert.write_text("none")
        line = hang_up(daemon, "the old certificates stay")
        assert str(files.cert) in line["reason"]
        HubClient.connect(bridge, tls=new.issue("environment")).close()
        assert daemon.end() == 0
