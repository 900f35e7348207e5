"""Traces: what is written, when it is on the disk, how it reads, and what a datagram means in words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ospbridge.errors import ConfigurationError
from ospbridge.observe.trace import (
    LONGEST_LINE,
    Direction,
    TraceRecord,
    TraceWriter,
    describe,
    read_trace,
)
from ospbridge.observe.trace_round_trips import round_trips
from ospbridge.osp.messages import (
    AgentInfoNext,
    AgentOverviewNext,
    EndAck,
    GetAgentOverview,
    Init,
    InitAck,
    NextSimulationStep,
    RegisterForValue,
    RegisterForValueAck,
    SetValue,
    StepCompleted,
)
from ospbridge.osp.profile import InitForm

C2S, S2C, NOTE = Direction.CLIENT_TO_SERVER, Direction.SERVER_TO_CLIENT, Direction.NOTE
RECORDINGS = sorted((Path(__file__).parents[1] / "osp" / "traces").glob("*.jsonl"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


# --- in words -------------------------------------------------------------------------------------------------------

REQUESTS_IN_WORDS = [
    (GetAgentOverview(), "GET_AGENT_OVERVIEW"),
    (Init(1, 1, InitForm.BYTES), "INIT_COMMUNICATION 1.1 in single bytes"),
    (Init(), "INIT_COMMUNICATION 1.1 in 4-byte integers"),
    (NextSimulationStep(1, floats(0.1, 0.2)), "NEXT_SIMULATION_STEP agent 1 inputs [0.1, 0.2]"),
    (NextSimulationStep(1, floats()), "NEXT_SIMULATION_STEP agent 1 inputs []"),
    (NextSimulationStep(1, floats(np.nan, -np.inf)), "NEXT_SIMULATION_STEP agent 1 inputs [nan, -inf]"),
    (SetValue(140, "0.02"), "SET_VALUE value 140 content '0.02'"),
    (SetValue(1, "\x1b[2J\n\x9b\x7fé"), r"SET_VALUE value 1 content '\x1b[2J\n\x9b\x7f\xe9'"),
    (RegisterForValue((200_000_000, 2)), "REGISTER_FOR_VALUE ids [200000000, 2]"),
]
REPLIES_IN_WORDS = [
    (EndAck(), "END_COMMUNICATION_ACK"),
    (
        AgentOverviewNext(0, 1, "Agent", 1, "Volksbot"),
        "AGENT_OVERVIEW_NEXT index 0 agent 1 type 'Agent' available 1 name 'Volksbot'",
    ),
    (AgentInfoNext(2, -1.0, 0.1, "/Angle"), "AGENT_INFO_NEXT index 2 min -1 max 0.1 name '/Angle'"),
    (StepCompleted(1, floats(0.5), floats()), "NEXT_SIMULATION_STEP_COMPLETED agent 1 outputs [0.5]"),
    (
        StepCompleted(1, floats(0.5), floats(2), (4, 3), 1),
        "NEXT_SIMULATION_STEP_COMPLETED agent 1 outputs [0.5] infos [2] events [4, 3] observed 1",
    ),
    (RegisterForValueAck((3, 0)), "REGISTER_FOR_VALUE_ACK ids [3, 0]"),
    (RegisterForValueAck((3, 0), counted=False), "REGISTER_FOR_VALUE_ACK ids [3, 0] without a count"),
]


IN_WORDS = [(C2S, *each) for each in REQUESTS_IN_WORDS] + [(S2C, *each) for each in REPLIES_IN_WORDS]


@pytest.mark.parametrize("direction, message, words", IN_WORDS)
def test_a_message_is_described_by_name_and_fields(direction: Direction, message: Init, words: str) -> None:
    assert describe(message.encode(), direction) == describe(message.encode(end=True), direction) == words


def test_what_was_cut_says_how_much_of_it_arrived() -> None:
    data = StepCompleted(1, np.zeros(300, dtype=np.float32), floats()).encode()[:1021] + b"\x78"
    assert describe(data, S2C, 1024).endswith("(cut by the server: 250 of 300 values arrived)")
    assert describe(data, S2C).startswith("malformed NEXT_SIMULATION_STEP_COMPLETED: expected 300 outputs")
    assert describe((b"\x33\1\0\0\0" + b"x" * 1017 + b"\0"), S2C, 1024).endswith(
        "(cut by the server at 1023 bytes)"
    )


def test_garbage_is_described_by_its_error() -> None:
    assert describe(b"", C2S) == "garbage: expected a request, got an empty datagram at offset 0 of 0 bytes"
    assert describe(b"\x09\xff", C2S) == "garbage: code 9 is no request of OSP 1.1 at offset 0 of 2 bytes"
    assert describe(b"\x50", C2S) == (
        "malformed NEXT_SIMULATION_STEP: expected agent_id of 4 bytes, 0 left at offset 1 of 1 byte"
    )


@given(st.binary(max_size=80), st.sampled_from([C2S, S2C]), st.sampled_from([None, 10, 1024]))
def test_any_bytes_are_described_in_one_printable_line(
    data: bytes, direction: Direction, limit: int | None
) -> None:
    words = describe(data, direction, limit)
    assert words
    assert words.isprintable()


# --- writing and reading --------------------------------------------------------------------------------------------


def test_a_trace_is_read_as_it_was_told(path: Path) -> None:
    with TraceWriter(path, client="cart") as trace:
        trace.sent(b"\x05\x01\x01", 45454)
        trace.received(b"\x06\x01\x01\x78", 40001)
        trace.note("waiting for others")
    first, second, third = read_trace(path)
    assert (first.direction, first.data, first.port, first.client) == (C2S, b"\x05\x01\x01", 45454, "cart")
    assert first.note == "INIT_COMMUNICATION 1.1 in single bytes"
    assert (second.direction, second.data, second.port) == (S2C, b"\x06\x01\x01\x78", 40001)
    assert (third.direction, third.data, third.port, third.note) == (NOTE, b"", 0, "waiting for others")
    assert 0 <= first.time <= second.time <= third.time < 5


def test_a_cut_reply_is_noted_as_such_once_the_server_is_known(path: Path) -> None:
    with TraceWriter(path) as trace:
        trace.received(InitAck(1, 1, InitForm.BYTES).encode(end=True), 40001)
        trace.received(
            StepCompleted(1, np.zeros(300, dtype=np.float32), floats()).encode()[:1021] + b"\x78", 40001
        )
    assert list(read_trace(path))[1].note.endswith("(cut by the server: 250 of 300 values arrived)")


def test_a_killed_process_leaves_all_it_told(path: Path) -> None:
    program = (
        "import os, signal, sys; from ospbridge.observe.trace import TraceWriter\n"
        "trace = TraceWriter(sys.argv[1])\n"
        "for i in range(100): trace.sent(bytes((90, 120)), 40001)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert len(list(read_trace(path))) == 100


def test_a_new_trace_replaces_an_old_one(path: Path) -> None:
    for text in ("old", "new"):
        with TraceWriter(path) as trace:
            trace.note(text)
    assert [record.note for record in read_trace(path)] == ["new"]


def test_a_trace_that_is_being_written_is_replaced_by_no_other(path: Path) -> None:
    with TraceWriter(path) as trace:
        trace.note("first")
        with pytest.raises(ConfigurationError, match="it is being written already") as caught:
            TraceWriter(path)
        assert "for each trace its own" in caught.value.hint
        trace.note("first")
    assert [record.note for record in read_trace(path)] == ["first", "first"]


def test_a_trace_that_cannot_be_written_or_read_says_where_and_why(path: Path) -> None:
    absent = path / "absent"
    with pytest.raises(ConfigurationError, match=f"cannot write a trace to {absent}: No such file") as caught:
        TraceWriter(absent)
    assert "directory" in caught.value.hint
    with pytest.raises(ConfigurationError, match=f"cannot read the trace {absent}: No such file"):
        next(read_trace(absent))
    os.mkfifo(path)
    with pytest.raises(ConfigurationError, match="it is a pipe that nobody reads"):
        TraceWriter(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk that is always full")
def test_a_full_disk_ends_the_trace_with_one_warning_and_not_the_session() -> None:
    with capture_logs() as logs, TraceWriter("/dev/full") as trace:
        trace.sent(b"\x5a", 1)
        trace.sent(b"\x5a", 1)
    assert [(entry["event"], entry["reason"]) for entry in logs] == [
        ("trace ended", "No space left on device")
    ]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recordings_of_real_peers_are_traces(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    records = list(read_trace(path))
    assert [(record.time, record.direction, record.data.hex(), record.port) for record in records] == [
        (line["t"], line["dir"], line["hex"], line["port"]) for line in lines
    ]
    assert [json.loads(record.encode()) for record in records] == lines


GOOD = b'{"t": 0.5, "dir": "c>s", "hex": "5a", "port": 1, "note": "", "client": ""}\n'


@pytest.mark.parametrize(
    "line, reason",
    [
        (b"hello\n", "malformed"),
        (b"[1, 2]\n", "Expected `object`"),
        (b'{"dir": "note"}\n', "missing required field `t`"),
        (b'{"t": 1.0}\n', "missing required field `dir`"),
        (b'{"t": "1", "dir": "note"}\n', "Expected `float`, got `str` - at `$.t`"),
        (b'{"t": 1e300, "dir": "note"}\n', "at `$.t`"),
        (b'{"t": 1.0, "dir": "up"}\n', "Invalid enum value 'up' - at `$.dir`"),
        (b'{"t": 1.0, "dir": "c>s", "hex": "5"}\n', "pairs of hexadecimal digits"),
        (b'{"t": 1.0, "dir": "c>s", "hex": "zz"}\n', "pairs of hexadecimal digits"),
        (b'{"t": 1.0, "dir": "c>s", "port": 70000}\n', "at `$.port`"),
        (b'{"t": 1.0, "dir": "note", "note": "\xff"}\n', "utf-8"),
        (b'{"t": 1.0, "dir": "note", "x": ' + b"[" * 100_000 + b"\n", "recursion"),
        (b" " * LONGEST_LINE + b"x\n", "longer than 1048576 bytes"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_file_and_line(path: Path, line: bytes, reason: str) -> None:
    path.write_bytes(GOOD + b"\n" + line + GOOD)
    records = read_trace(path)
    assert next(records).data == b"\x5a"
    with pytest.raises(ConfigurationError) as caught:
        next(records)
    assert caught.value.message.startswith(f"{path}:3: expected a record of a trace, got b'")
    assert reason in caught.value.message
    assert "--trace" in caught.value.hint


def test_a_last_line_without_its_end_is_told_as_a_note(path: Path) -> None:
    path.write_bytes(GOOD + GOOD[:20])
    first, last = read_trace(path)
    assert first.data == b"\x5a"
    assert (last.direction, last.time) == (NOTE, 0.5)
    assert "incomplete" in last.note


# --- how long requests took: which answer belongs to which request --------------------------------------------------


ONE, TWO = b"\1\0\0\0", b"\2\0\0\0"


def trace(*lines: tuple[float, str, int, bytes], client: str = "") -> list[TraceRecord]:
    """Time in milliseconds, direction, code, id."""
    return [
        TraceRecord(time / 1000, Direction(direction), bytes((code,)) + data, 4001, client=client)
        for time, direction, code, data in lines
    ]


def took(records: list[TraceRecord]) -> list[tuple[int, float | None]]:
    """Code and milliseconds."""
    return [
        (int(trip.code), None if trip.seconds is None else round(trip.seconds * 1000, 6))
        for trip in round_trips(records)
    ]


def test_a_step_takes_from_its_first_vote_to_its_last_completion() -> None:
    records = trace(
        (0, "c>s", 80, ONE),
        (1, "s>c", 81, ONE),
        (2, "c>s", 80, TWO),
        (3, "s>c", 81, TWO),
        (5, "s>c", 85, ONE),
        (6, "c>s", 86, ONE),
        (9, "s>c", 85, TWO),
        (10, "c>s", 86, TWO),
        (20, "c>s", 80, ONE),
        (24, "s>c", 85, ONE),
    )
    assert took(records) == [(80, 9), (80, 4)]


@pytest.mark.parametrize(
    "lines, told",
    [
        (
            [(0, "c>s", 80, ONE), (1, "s>c", 81, ONE), (300, "c>s", 80, ONE), (301, "s>c", 85, ONE)],
            [(80, None), (80, 1)],
        ),
        (
            [(0, "c>s", 70, b""), (1, "s>c", 71, b""), (2, "c>s", 70, b""), (8, "s>c", 75, b"")],
            [(70, 8)],
        ),
        (
            [(0, "c>s", 50, ONE), (1, "c>s", 50, TWO), (4, "s>c", 51, TWO), (6, "s>c", 51, ONE)],
            [(50, 3), (50, 6)],
        ),
        ([(0, "c>s", 90, b""), (300, "c>s", 90, b""), (301, "s>c", 91, ONE)], [(90, None), (90, 1)]),
        ([(0, "c>s", 5, b"\1"), (1, "c>s", 5, b"\1"), (52, "s>c", 6, b"\1")], [(5, 52)]),
    ],
    ids=["never completed", "a reset, to its completion", "by id", "asked again", "the first form of INIT"],
)
def test_an_answer_belongs_to_its_latest_request(
    lines: list[tuple[float, str, int, bytes]], told: list[tuple[int, float | None]]
) -> None:
    assert took(trace(*lines)) == told


def test_clients_are_told_apart() -> None:
    one = trace((0, "c>s", 50, ONE), (3, "s>c", 51, ONE), client="A")
    other = trace((1, "c>s", 50, ONE), client="B")
    assert took([one[0], *other, one[1]]) == [(50, 3), (50, None)]
