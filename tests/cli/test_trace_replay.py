"""`ospbridge trace replay` as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import NERD
from ospbridge.session.blocking import BlockingSession
from tests.simulator.raw import RawClient

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "s04_reset_step.jsonl"


@contextmanager
def running(*options: str | Path) -> Iterator[tuple[subprocess.Popen[str], Endpoint]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", "trace", "replay", "--port", "0", *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        yield process, Endpoint(host, int(port))
    finally:
        process.kill()
        process.communicate()


def step(address: Endpoint, *inputs: float) -> None:
    with BlockingSession.connect(address) as session:
        session.register("Humanoid")
        session.reset(7)
        session.step({"Humanoid": np.array(inputs, np.float32)})


@pytest.mark.loopback
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_tells_what_differs_and_ends_with_0(number: signal.Signals) -> None:
    with running(RECORDING) as (process, address):
        step(address, 0.5, 1.0, -0.25, 1.0)
        process.send_signal(number)
        output, told = process.communicate(timeout=10)
        assert (process.returncode, output) == (0, "")
    lines = told.splitlines()
    assert lines[0] == "conversation 1: a client joined; 6 steps and 3 resets are recorded"
    assert lines[-3] == (
        "conversation 1 at 0.224 s: step 1: expected NEXT_SIMULATION_STEP agent 1 inputs [0.25, 1, -0.25, 1], "
        "got NEXT_SIMULATION_STEP agent 1 inputs [0.5, 1, -0.25, 1]"
    )
    assert lines[-2].endswith("its client left after 1 of its steps and 1 of its resets")
    assert lines[-1] == "clients: 1, steps: 1, resets: 1, differences from the recording: 3"


@pytest.mark.loopback
def test_a_strict_one_ends_with_1_at_the_first_difference() -> None:
    with running(RECORDING, "--strict") as (process, address), RawClient(address, NERD) as client:
        client.send(b"\x32\x63\0\0\0")
        _, told = process.communicate(timeout=10)
    assert process.returncode == 1
    assert "the recording has no GET_VALUE value 99" in told


@pytest.mark.loopback
def test_a_quiet_one_says_its_address_only() -> None:
    with running(RECORDING, "--quiet") as (process, address):
        step(address, 0.5, 1.0, -0.25, 1.0)
        process.terminate()
        assert process.communicate(timeout=10) == ("", "")


@pytest.mark.loopback
def test_what_is_ignored_is_told(tmp_path: Path) -> None:
    with running(RECORDING) as (process, address), RawClient(address, NERD) as client:
        client.send(b"\xfa?")
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.terminate()
        process.communicate(timeout=10)
    assert "ignored so far: 1 x unknown command\n" in lines


@pytest.mark.loopback
def test_many_differences_are_counted_and_few_are_told() -> None:
    with running(RECORDING) as (process, address):
        with BlockingSession.connect(address) as session:
            for number in range(30):
                assert session.values(f"/nothing/{number}") == ()
        process.terminate()
        _, told = process.communicate(timeout=10)
    lines = told.splitlines()
    assert sum("the recording has no" in line for line in lines) == 10
    assert "further differences of this client are only counted" in lines
    assert lines[-1].endswith("differences from the recording: 30")


def test_a_part_without_the_beginning_is_refused_with_the_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(RECORDING.read_text().splitlines(keepends=True)[2:60]))
    result = CliRunner().invoke(main, ["trace", "replay", str(trace), "--port", "0"])
    assert result.exit_code == 78
    assert f"Error: {trace}: nothing to replay" in result.stderr
    assert "Hint: a trace to replay holds the beginning" in result.stderr


@pytest.mark.parametrize("content", [b"\x89PNG", b"", b"[]\n", json.dumps({"t": 1.0}).encode()])
def test_what_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    result = CliRunner().invoke(main, ["trace", "replay", str(file), "--port", "0"])
    assert result.exit_code == 78
    assert str(file) in result.stderr
    assert "Hint: " in result.stderr


@pytest.mark.loopback
def test_a_port_that_is_taken_is_refused_with_the_next_step() -> None:
    with running(RECORDING) as (_, address):
        result = CliRunner().invoke(main, ["trace", "replay", str(RECORDING), "--port", str(address.port)])
    assert result.exit_code == 78
    assert "--port 0" in result.stderr
