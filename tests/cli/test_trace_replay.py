"""`ospbridge trace replay` as a process of its own."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.interface import Endpoint
from ospbridge.osp.profile import NERD
from ospbridge.session.blocking import BlockingSession
from tests.cli.programs import started
from tests.simulator.raw import RawClient

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "s04_reset_step.jsonl"


@contextmanager
def running(*options: str | Path) -> Iterator[tuple[subprocess.Popen[str], Endpoint]]:
    with started("trace", "replay", "--port", "0", *options) as (process, address):
        host, _, port = address.rpartition(":")
        yield process, Endpoint(host, int(port))


def step(address: Endpoint, *inputs: float) -> None:
    with BlockingSession.connect(address) as session:
        session.register("Humanoid")
        session.reset(7)
        session.step({"Humanoid": np.array(inputs, np.float32)})


@pytest.mark.loopback
def test_it_prints_its_address_tells_what_differs_and_ends_with_0() -> None:
    with running(RECORDING) as (process, address):
        taken = CliRunner().invoke(main, ["trace", "replay", str(RECORDING), "--port", str(address.port)])
        assert taken.exit_code == 78
        assert "--port 0" in taken.stderr
        step(address, 0.5, 1.0, -0.25, 1.0)
        with BlockingSession.connect(address) as session:
            for number in range(12):
                assert session.values(f"/nothing/{number}") == ()
        process.send_signal(signal.SIGTERM)
        output, told = process.communicate()
        assert (process.returncode, output) == (0, "")
    lines = told.splitlines()
    assert lines[0] == "conversation 1: a client joined; 6 steps and 3 resets are recorded"
    assert (
        "conversation 1 at 0.224 s: step 1: expected NEXT_SIMULATION_STEP agent 1 inputs [0.25, 1, -0.25, 1], "
        "got NEXT_SIMULATION_STEP agent 1 inputs [0.5, 1, -0.25, 1]"
    ) in lines
    assert any(line.endswith("its client left after 1 of its steps and 1 of its resets") for line in lines)
    # Of one client ten differences are told, and the others counted.
    assert sum("the recording has no GET_VALUE_IDS expression '/nothing/" in line for line in lines) == 10
    assert "further differences of this client are only counted" in lines
    assert lines[-1] == "clients: 2, steps: 1, resets: 1, differences from the recording: 15"


@pytest.mark.loopback
def test_a_strict_one_ends_with_1_at_the_first_difference() -> None:
    with running(RECORDING, "--strict") as (process, address), RawClient(address, NERD) as client:
        client.send(b"\x32\x63\0\0\0")
        _, told = process.communicate()
    assert process.returncode == 1
    assert "the recording has no GET_VALUE value 99" in told


def test_a_part_without_the_beginning_is_refused_with_the_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(RECORDING.read_text().splitlines(keepends=True)[2:60]))
    result = CliRunner().invoke(main, ["trace", "replay", str(trace), "--port", "0"])
    assert result.exit_code == 78
    assert f"Error: {trace}: nothing to replay" in result.stderr
    assert "Hint: a trace to replay holds the beginning" in result.stderr
