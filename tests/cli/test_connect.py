"""`ospbridge connect`: what it refuses before it joins a simulator."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.session.hub_client import default_hub

pytestmark = pytest.mark.loopback


def connect(simulator: socket.socket, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    address = "{}:{}".format(*simulator.getsockname())
    return subprocess.run(
        [sys.executable, "-m", "ospbridge", "connect", "--simulator", address, *options],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.mark.parametrize("wrong", ["a file", "below a file", "may not be written to"])
@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_directory_that_cannot_be_recorded_in_is_refused_before_the_simulator_is_contacted(
    wrong: str, by: str, tmp_path: Path
) -> None:
    directory = tmp_path / "out"
    if wrong == "a file":
        directory.touch()
    elif wrong == "below a file":
        directory.touch()
        directory /= "below"
    elif os.geteuid():
        directory.mkdir(mode=0o555)
    else:
        # Where even root may make no files.
        directory = Path("/proc")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as simulator:
        simulator.bind(("127.0.0.1", 0))
        if by == "option":
            done = connect(simulator, "--record", str(directory))
        else:
            done = connect(simulator, OSPBRIDGE_CONNECT_RECORD=str(directory))
        simulator.setblocking(False)
        with pytest.raises(BlockingIOError):
            simulator.recv(1)
    assert done.returncode == 78
    assert f"episodes cannot be recorded in {directory}" in done.stderr
    assert "Hint: name a directory" in done.stderr
    assert not default_hub().exists()


def test_help_says_what_record_writes() -> None:
    result = CliRunner().invoke(main, ["connect", "--help"])
    assert "--record DIR" in result.output
    assert "Write every episode" in result.output
