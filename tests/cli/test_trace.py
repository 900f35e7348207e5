"""`ospbridge trace show`, `filter` and `replay`: what they print, keep and refuse."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ospbridge.cli import main
from ospbridge.interface import Endpoint
from ospbridge.observe.trace import Direction, TraceRecord, TraceWriter, read_trace
from ospbridge.osp.profile import NERD
from ospbridge.session.blocking import BlockingSession
from tests.cli.programs import invoke, on_a_terminal, started
from tests.simulator.raw import RawClient

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "s04_reset_step.jsonl"


run = partial(invoke, "trace", "show")


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    """Four records with settled times."""
    path = tmp_path / "trace.jsonl"
    records = [
        TraceRecord(0.0, Direction.CLIENT_TO_SERVER, bytes.fromhex("050101"), 45454),
        TraceRecord(0.0515, Direction.SERVER_TO_CLIENT, bytes.fromhex("06010178"), 40001, "", "cart"),
        TraceRecord(0.052, Direction.NOTE, b"", note="waiting"),
        TraceRecord(1.25, Direction.CLIENT_TO_SERVER, bytes.fromhex("09ff"), 40001, "why"),
    ]
    path.write_bytes(b"".join(record.encode() for record in records))
    return path


def test_each_record_is_a_line_with_time_delta_direction_port_and_meaning(trace_file: Path) -> None:
    result = run(trace_file)
    assert result.output.splitlines() == [
        "     time/s   delta/ms dir   port datagram",
        "   0.000000            c>s  45454 INIT_COMMUNICATION 1.1 in single bytes",
        "   0.051500    +51.500 s>c  40001 [cart] INIT_COMMUNICATION_ACK 1.1 in single bytes",
        "   0.052000     +0.500 note       waiting",
        "   1.250000  +1198.000 c>s  40001 garbage: code 9 is no request of OSP 1.1 at offset 0 of 2 bytes  # why",
    ]


def test_json_repeats_the_records_with_their_meaning(trace_file: Path) -> None:
    result = run(trace_file, "--json")
    records = [json.loads(line) for line in result.output.splitlines()]
    assert [(record["t"], record["dir"], record["hex"]) for record in records] == [
        (0.0, "c>s", "050101"),
        (0.0515, "s>c", "06010178"),
        (0.052, "note", ""),
        (1.25, "c>s", "09ff"),
    ]
    assert [record["note"] for record in records[:3]] == [
        "INIT_COMMUNICATION 1.1 in single bytes",
        "INIT_COMMUNICATION_ACK 1.1 in single bytes",
        "waiting",
    ]
    assert records[3]["note"].startswith("garbage")
    assert len(run(trace_file, "--json", "--limit", "2").output.splitlines()) == 2


def test_what_a_trace_holds_cannot_steer_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with TraceWriter(path, client="\x1b[2J") as trace:
        trace.note("two\nlines \x1b[31m and \x9b")
    result = run(path)
    assert len(result.output.splitlines()) == 2
    assert r"[\x1b[2J] two\nlines \x1b[31m and \x9b" in result.output


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--code", "NEXT_SIMULATION_STP"], "Did you mean NEXT_SIMULATION_STEP"),
        (["--code", "nothing"], "is no code of OSP 1.1. Names look like"),
        (["--code", "99"], "'99' is no code of OSP 1.1"),
        (["--limit", "0"], "--limit"),
    ],
)
def test_a_wrong_option_is_a_usage_error_that_says_what_is_right(arguments: list[str], message: str) -> None:
    result = run(RECORDING, *arguments, exit_code=2)
    assert message in result.output


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    result = run(tmp_path / "absent.jsonl", exit_code=2)
    assert "absent.jsonl' does not exist" in result.output


def test_a_malformed_trace_exits_78_after_what_could_be_read(trace_file: Path) -> None:
    trace_file.write_bytes(trace_file.read_bytes() + b"not a record\nnor this\n")
    result = run(trace_file, exit_code=78)
    assert "waiting" in result.output
    assert f"Error: {trace_file}:5: expected a record of a trace, got b'not a record" in result.output
    assert "Hint: a trace is what --trace FILE writes" in result.output


def test_a_summary_says_how_long_requests_took() -> None:
    lines = run(RECORDING, "--summary").output.splitlines()
    assert lines[0] == "133 datagrams in 2.867 s; times in ms, slow from 40"
    assert lines[1].split() == ["request", "answered", "lost", "median", "95", "%", "longest", "slow"]
    assert [line.split()[:3] for line in lines[2:5]] == [
        ["INIT_COMMUNICATION", "3", "0"],
        ["END_COMMUNICATION", "3", "0"],
        ["RESET_SIMULATION", "4", "0"],
    ]


def test_a_summary_is_json_for_programs_and_of_what_was_chosen() -> None:
    options = ["--summary", "--json", "--client", "A", "--code", "NEXT_SIMULATION_STEP", "--slow", "500"]
    (row,) = json.loads(run(RECORDING, *options).output)
    assert row.pop("median_ms") < row.pop("p95_ms") <= row.pop("longest_ms")
    assert row == {"request": "NEXT_SIMULATION_STEP", "answered": 6, "unanswered": 0, "slow": 2}


@pytest.mark.parametrize("no_color", [False, True])
def test_output_has_colours_on_a_terminal_only(trace_file: Path, no_color: bool) -> None:
    assert "\x1b" not in run(trace_file).stdout
    output = on_a_terminal("trace", "show", trace_file, **({"NO_COLOR": "1"} if no_color else {}))
    assert ("\x1b[36m" in output) is not no_color


# --- `ospbridge trace filter`: what it keeps, and what it never overwrites ------------------------------------------


RECORDS = list(read_trace(RECORDING))


filtered = partial(invoke, "trace", "filter")


def chosen(*options: str) -> list[TraceRecord]:
    result = filtered(RECORDING, "-o", "-", *options)
    return [_record(line) for line in result.stdout.splitlines()]


def _record(line: str) -> TraceRecord:
    row = json.loads(line)
    data = bytes.fromhex(row["hex"])
    return TraceRecord(row["t"], Direction(row["dir"]), data, row["port"], row["note"], row["client"])


@pytest.mark.parametrize(
    "options, fits",
    [
        (
            ["--code", "next_simulation_step", "--code", "UDP_NEXT_SIMULATION_STEP_ACK"],
            lambda r: r.data[:1] in (b"P", b"Q"),
        ),
        (["--direction", "sent"], lambda r: r.direction is Direction.CLIENT_TO_SERVER),
        (["--direction", "received", "--direction", "note"], lambda r: r.direction.value in ("s>c", "note")),
        (["--client", "O"], lambda r: r.client == "O"),
        (["--port", "55492"], lambda r: r.port == 55492),
        (["--from", "1.5", "--to", "2.25"], lambda r: 1.5 <= r.time <= 2.25),
        (
            ["--client", "A", "--code", "80", "--invert"],
            lambda r: r.client != "A" or r.data[:1] != b"P",
        ),
        ([], lambda _: True),
        (["--invert"], lambda _: False),
    ],
)
def test_records_that_fit_all_that_is_asked_are_kept_as_they_are(
    options: list[str], fits: Callable[[TraceRecord], bool]
) -> None:
    assert chosen(*options) == [record for record in RECORDS if fits(record)]


def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    target = tmp_path / "part.jsonl"
    target.write_text("mine")
    result = filtered(RECORDING, "-o", target, exit_code=2)
    assert f"Error: {target} exists already\nHint: " in result.stderr
    assert target.read_text() == "mine"
    filtered(RECORDING, "-o", target, "--force")
    assert list(read_trace(target)) == RECORDS


@pytest.mark.parametrize("way", ["itself", "link", "symlink"])
def test_the_trace_that_is_read_is_never_overwritten(tmp_path: Path, way: str) -> None:
    source = tmp_path / "trace.jsonl"
    source.write_bytes(RECORDING.read_bytes())
    target = source if way == "itself" else tmp_path / "other.jsonl"
    if way == "link":
        target.hardlink_to(source)
    elif way == "symlink":
        target.symlink_to(source)
    result = filtered(source, "-o", target, "--force", "--client", "A", exit_code=2)
    assert "is the trace that is read" in result.stderr
    assert source.read_bytes() == RECORDING.read_bytes()


def test_a_damaged_trace_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "trace.jsonl"
    source.write_bytes(RECORDING.read_bytes() + b"no record\n" + RECORDING.read_bytes())
    result = filtered(source, "-o", tmp_path / "part.jsonl", exit_code=78)
    assert f"{source}:{len(RECORDS) + 1}: expected a record of a trace" in result.stderr
    assert list(tmp_path.iterdir()) == [source]


# --- `ospbridge trace replay` as a process of its own ---------------------------------------------------------------


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
