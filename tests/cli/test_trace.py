"""`ospbridge trace show`: what it prints, filters and refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from ospbridge.observe.trace import Direction, TraceRecord, TraceWriter
from tests.cli.programs import invoke, on_a_terminal

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
