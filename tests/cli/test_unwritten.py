"""Output that cannot be written is an error with a code of its own, and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ospbridge.cli.unwritten import EXIT_UNWRITTEN
from tests.cli.programs import ran

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="/dev/full is Linux's")


def into_full(*arguments: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    with FULL.open("wb") as full:
        return ran(*arguments, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})


@pytest.mark.parametrize(
    "arguments, unbuffered",
    [("--help", ""), ("--version", "1"), ("completion bash", ""), ("check --json cartpole", "1")],
)
def test_a_full_disk_behind_standard_output_is_said_in_two_lines(arguments: str, unbuffered: str) -> None:
    """Unbuffered, as programs in containers are often told to be."""
    ended = into_full(*arguments.split(), unbuffered=unbuffered)
    assert ended.returncode == EXIT_UNWRITTEN
    error, hint = ended.stderr.splitlines()
    assert error == "Error: the output cannot be written to standard output: No space left on device"
    assert hint.startswith("Hint: ")


def test_a_command_that_failed_by_itself_keeps_its_own_error() -> None:
    ended = into_full("check", "no-such-scenario")
    assert ended.returncode == 78
    assert "no-such-scenario" in ended.stderr


@pytest.mark.parametrize(
    "arguments", ["--help", f"trace show {Path(__file__).parents[1]}/osp/traces/o01_ode_arena.jsonl"]
)
def test_a_closed_pipe_is_met_in_silence(arguments: str) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", *arguments.split()],
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


@pytest.mark.parametrize("command", ["--help >&-", "check cartpole --json >&- 2>&-"])
def test_a_command_whose_output_is_closed_ends_as_ever(command: str) -> None:
    line = f"{sys.executable} -m ospbridge {command}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
