"""`ospbridge trace filter`: what it keeps, and what it never overwrites."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ospbridge.observe.trace import Direction, TraceRecord, read_trace
from tests.cli.programs import invoke

RECORDING = Path(__file__).parents[1] / "osp" / "traces" / "s04_reset_step.jsonl"
RECORDS = list(read_trace(RECORDING))


run = partial(invoke, "trace", "filter")


def chosen(*options: str) -> list[TraceRecord]:
    result = run(RECORDING, "-o", "-", *options)
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
    result = run(RECORDING, "-o", target, exit_code=2)
    assert f"Error: {target} exists already\nHint: " in result.stderr
    assert target.read_text() == "mine"
    run(RECORDING, "-o", target, "--force")
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
    result = run(source, "-o", target, "--force", "--client", "A", exit_code=2)
    assert "is the trace that is read" in result.stderr
    assert source.read_bytes() == RECORDING.read_bytes()


def test_a_damaged_trace_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    source = tmp_path / "trace.jsonl"
    source.write_bytes(RECORDING.read_bytes() + b"no record\n" + RECORDING.read_bytes())
    result = run(source, "-o", tmp_path / "part.jsonl", exit_code=78)
    assert f"{source}:{len(RECORDS) + 1}: expected a record of a trace" in result.stderr
    assert list(tmp_path.iterdir()) == [source]
