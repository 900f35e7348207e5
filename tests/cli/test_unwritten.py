"""Output that cannot be written is an error with a code of its own, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ospbridge.cli.unwritten import EXIT_UNWRITTEN

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")
PRINTING = [
    ["--help"],
    ["--version"],
    ["sim", "--help"],
    ["completion", "bash"],
    ["check", "cartpole"],
    ["check", "--json", "cartpole"],
]


@pytest.fixture(params=["", "1"], ids=["buffered", "unbuffered"])
def buffering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs in containers are often told."""
    monkeypatch.setenv("PYTHONUNBUFFERED", request.param)


@pytest.mark.usefixtures("buffering")
@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_full_disk_behind_standard_output_is_said_in_two_lines(arguments: list[str]) -> None:
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "ospbridge", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == EXIT_UNWRITTEN
    error, hint = ended.stderr.splitlines()
    assert error == "Error: the output cannot be written to standard output: No space left on device"
    assert hint.startswith("Hint: ")


@pytest.mark.parametrize("arguments", [["--help"], ["check", "cartpole"]], ids=" ".join)
def test_a_closed_pipe_is_met_in_silence(arguments: list[str]) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    program.stdout.close()
    assert program.stderr is not None
    with program.stderr:
        assert program.stderr.read() == ""
    assert program.wait(60) == 1


def test_a_command_that_failed_by_itself_keeps_its_own_error() -> None:
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "ospbridge", "check", "no-such-scenario"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert ended.returncode == 78
    assert "no-such-scenario" in ended.stderr


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
@pytest.mark.parametrize("command", ["--help", "config show", "check cartpole", "check cartpole --json"])
def test_a_command_whose_output_is_closed_ends_as_ever(command: str, closed: str) -> None:
    line = f"{sys.executable} -m ospbridge {command} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
