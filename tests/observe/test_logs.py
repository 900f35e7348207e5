"""Logging: JSON lines for programs, readable lines for people, nothing below the level."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ospbridge.observe import logs
from tests.cli.programs import on_a_terminal


class Written(io.StringIO):
    """What is logged from now on."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        logs.configure(stream=self, **options)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_where_no_terminal_is() -> None:
    stream = Written()
    logs.get("ospbridge.daemon").info("session opened", simulator="127.0.0.1:45454", agents=2)
    (event,) = stream.events
    assert list(event) == ["timestamp", "level", "event", "logger_name", "simulator", "agents"]
    assert event["timestamp"].endswith("Z")
    assert list(event.values())[1:] == ["info", "session opened", "ospbridge.daemon", "127.0.0.1:45454", 2]


@pytest.mark.parametrize(
    "level, kept",
    [
        ("debug", ["debug", "info", "warning", "error", "critical"]),
        ("WARNING", ["warning", "error", "critical"]),
        ("critical", ["critical"]),
    ],
)
def test_events_below_the_level_are_dropped(level: str, kept: list[str]) -> None:
    stream = Written(level=level)
    log = logs.get("x")
    for name in logs.LEVELS:
        getattr(log, name)("event")
    assert [event["level"] for event in stream.events] == kept


class Peer:
    def __repr__(self) -> str:
        return "<peer>"


def test_beside_what_cannot_be_written_the_rest_of_a_line_is_as_ever() -> None:
    stream = Written()
    log = logs.get("x")
    log.info("kept", spool=os.fsdecode(b"/tmp/\xff"), entries=3, odd=2**20000, peer=Peer())
    (event,) = stream.events
    assert (event["level"], event["event"], event["logger_name"]) == ("info", "kept", "x")
    assert (event["spool"], event["entries"]) == (r"/tmp/\udcff", 3)
    assert (event["odd"], event["peer"]) == ("a int", "<peer>")


PROGRAM = (
    "from ospbridge.observe import logs\n"
    "logs.configure()\n"
    "log = logs.get('ospbridge.test')\n"
    "log.debug('hidden')\n"
    "log.info('ready', agents=2)\n"
)


@pytest.mark.parametrize("no_color", [False, True])
def test_a_program_logs_for_eyes_to_a_terminal(no_color: bool) -> None:
    line = on_a_terminal(code=PROGRAM, **({"NO_COLOR": "1"} if no_color else {}))
    assert "ready" in line
    assert "hidden" not in line
    assert not line.startswith("{")
    assert ("\x1b[" in line) is not no_color


def test_in_the_journal_a_line_has_its_priority_and_no_time_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "journal").open("w+") as stream:
        there = os.fstat(stream.fileno())
        monkeypatch.setenv("JOURNAL_STREAM", f"{there.st_dev}:{there.st_ino}")
        logs.configure(stream=stream)
        log = logs.get("somebody")
        log.info("joined", agents=2)
        log.warning("lost")
        log.error("given up")
        stream.seek(0)
        lines = stream.read().splitlines()
    assert lines == [
        '<6>{"level":"info","event":"joined","logger_name":"somebody","agents":2}',
        '<4>{"level":"warning","event":"lost","logger_name":"somebody"}',
        '<3>{"level":"error","event":"given up","logger_name":"somebody"}',
    ]


FULL = """
import resource
from ospbridge.observe import logs
logs.configure(json=True)
log = logs.get("test")
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
for number in range(20):
    log.info("before", number=number)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
log.info("after")
log.info("after")
"""


def test_a_line_that_a_full_disk_cut_off_spoils_none_that_comes_when_there_is_room_again(
    tmp_path: Path,
) -> None:
    with (tmp_path / "log").open("wb") as log:
        subprocess.run([sys.executable, "-c", FULL], stderr=log, check=True, timeout=60)
    *before, cut, first, second = (tmp_path / "log").read_text().splitlines()
    assert [json.loads(line)["event"] for line in (before[-1], first, second)] == ["before", "after", "after"]
    with pytest.raises(ValueError, match="line 1"):
        json.loads(cut)


def test_what_a_simulator_is_called_cannot_steer_the_terminal() -> None:
    stream = Written(json=False)
    logs.get("x").info("joined", agent="e\x1b[2J", reason="an é and\x1b[2J")
    told = stream.getvalue()
    assert "\x1b" not in told
    assert "agent=e\\x1b[2J" in told
    assert "an é and" in told


LONG = {
    "a name": "e\x1b[2J" + "A" * 40_000,
    "quotes": '"\\' * 20_000,
    "directions": "\u202e" * 40_000,
    "names": [f"agent{number}" for number in range(3000)],
    "long names": ["字" * 40_000] * 3000,
    "a mapping": {"A" * 40_000: "\u202e" * 40_000},
    "a number": 10**4000,
    "others": [Peer()] * 3000,
    "K" * 40_000: 1,
}


@pytest.mark.parametrize("json_lines", [True, False], ids=["JSON", "for eyes"])
@pytest.mark.parametrize("fields", [*({key: value} for key, value in LONG.items()), LONG], ids=[*LONG, "all"])
def test_no_line_is_longer_than_4_kb_and_nothing_in_it_is_invisible(
    fields: dict[str, Any], json_lines: bool
) -> None:
    stream = Written(json=json_lines)
    logs.get("x").warning("joined", agents=2, **fields)
    (line,) = stream.getvalue().splitlines()
    assert len(line.encode()) <= 4000
    assert line.isprintable()
    assert "joined" in line
    if json_lines:
        event = json.loads(line)
        assert event["agents"] == 2
        for value in event.values():
            told = ", ".join(value) if isinstance(value, list) else str(value)
            assert len(told.encode()) <= 1000


def test_names_that_find_no_room_in_a_line_are_counted() -> None:
    stream = Written()
    logs.get("x").info("joined", agents=[f"agent{number}" for number in range(3000)])
    logs.get("x").info("joined", **{f"field{number}": "A" * 500 for number in range(100)})
    first, second = stream.events
    *told, more = first["agents"]
    assert more == f"... {3000 - len(told):,} more"
    assert len([key for key in second if key.startswith("field")]) + second["left_out"] == 100


@pytest.mark.parametrize("json_lines", [True, False], ids=["JSON", "for eyes"])
def test_of_a_long_traceback_the_end_is_kept(json_lines: bool) -> None:
    def deep(more: int) -> None:
        try:
            if more:
                deep(more - 1)
        finally:
            raise ValueError("A" * 40_000 + "\x1bthe end")

    stream = Written(json=json_lines)
    try:
        deep(50)
    except ValueError:
        logs.get("x").exception("step failed", agents=["A" * 40_000] * 100)
    assert all(len(line.encode()) <= 4000 for line in stream.getvalue().splitlines())
    if json_lines:
        (event,) = stream.events
        assert event["level"] == "error"
        assert event["exception"].startswith("Traceback")
        assert event["exception"].endswith(r"\x1bthe end")
        assert " lines ..." in event["exception"]
