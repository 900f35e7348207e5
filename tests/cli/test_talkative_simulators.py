"""Simulators that say far too much: whatever asks them ends, in little memory, with short lines that can be read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from tests.cli.programs import WITHIN, until
from tests.cli.talkative import TalkativeServer

pytestmark = [pytest.mark.loopback, pytest.mark.timeout(120)]
LONGEST_LINE = 4000
MOST_MEMORY = 300 * 1024
"""KiB."""
ENDS = 20.0
"""Seconds for a busy machine; far less than what the programs are at would take."""
MEASURED = """
import atexit, os
from pathlib import Path
def tell():
    # Not resource.getrusage: what it says of a process includes the one that this was forked from.
    (peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    Path(os.environ["PEAK"]).write_text(peak.split()[1])
atexit.register(tell)
"""
COMMAND = f"{MEASURED}\nfrom ospbridge.__main__ import run\nrun()"
MAKE = f"{MEASURED}\nimport sys, gymnasium, ospbridge\ngymnasium.make('ospbridge/Agent-v0', simulator=sys.argv[1])"
MAKE_VEC = (
    f"{MEASURED}\nimport sys, gymnasium, ospbridge\n"
    "gymnasium.make_vec('ospbridge/Agent-v0', num_envs=40, simulator=sys.argv[1])"
)


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    peak: int


def run(directory: Path, code: str, *words: object) -> Ended:
    peak = directory / "peak"
    process = subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True,
        env=os.environ | {"PEAK": str(peak)},
        check=False,
        timeout=WITHIN,
    )
    return Ended(process.returncode, process.stdout.decode(), process.stderr.decode(), int(peak.read_text()))


@contextmanager
def going_on(*words: object, log: int | IO[bytes] = subprocess.DEVNULL) -> Iterator[subprocess.Popen[bytes]]:
    """A command, which is killed in the end."""
    with subprocess.Popen(
        [sys.executable, "-m", "ospbridge", *map(str, words)], stdout=subprocess.DEVNULL, stderr=log
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def assert_short(text: str) -> None:
    for line in text.splitlines():
        assert len(line.encode()) <= LONGEST_LINE
        assert line.isprintable()


def assert_well(ended: Ended) -> None:
    assert_short(ended.out)
    assert_short(ended.err)
    assert ended.peak < MOST_MEMORY
    assert ended.err.count("Traceback") <= 1, "no exception stands above the one that tells"


def asked(directory: Path, what: str | list[str], server: TalkativeServer) -> Ended:
    """What becomes of a program that is given the server's address, or of the words of a command."""
    if isinstance(what, str):
        ended = run(directory, what, server.address)
    else:
        hub = ["--hub", f"unix:{directory / 'hub'}"] if what[0] == "connect" else []
        ended = run(directory, COMMAND, *what, *hub, "--simulator", server.address)
        assert "Traceback" not in ended.err
    assert_well(ended)
    return ended


def taken_agents(count: int = 3000) -> TalkativeServer:
    return TalkativeServer(count, name=40_000, free=False)


def long_interfaces() -> TalkativeServer:
    """72 MB in all."""
    return TalkativeServer(40, inputs=30, input_name=60_000, free=True)


@pytest.mark.parametrize(
    "what, server, code",
    [
        (["agents"], taken_agents, 69),
        (["describe", "*0"], taken_agents, 69),
        (["connect", "--wait", "0"], long_interfaces, 69),
        (["doctor"], taken_agents, 1),
        (MAKE, taken_agents, 1),
        (MAKE_VEC, long_interfaces, 1),
    ],
    ids=["agents", "describe", "connect", "doctor", "make", "make_vec"],
)
def test_more_names_than_are_kept_are_an_error_that_says_what_came(
    what: str | list[str], server: Callable[[], TalkativeServer], code: int, tmp_path: Path
) -> None:
    with server() as talkative:
        ended = asked(tmp_path, what, talkative)
    assert ended.code == code
    assert "16,777,216 bytes" in ended.out + ended.err


@pytest.mark.parametrize(
    "words, server",
    [
        (["agents"], taken_agents),
        (["describe", "*0"], long_interfaces),
        (["doctor"], taken_agents),
        (["connect"], long_interfaces),
    ],
    ids=["agents", "describe", "doctor", "connect"],
)
def test_sigterm_ends_each_command_while_names_come_without_end(
    words: list[str], server: Callable[[], TalkativeServer], tmp_path: Path
) -> None:
    """And status tells in short of a daemon that is kept busy so."""
    hub = ["--hub", f"unix:{tmp_path / 'hub'}"]
    more = hub if words == ["connect"] else []
    with server() as talkative, going_on(*words, *more, "--simulator", talkative.address) as process:
        until(lambda: talkative.lists or process.poll() is not None)
        if more:
            assert_well(run(tmp_path, COMMAND, "status", *hub))
        process.send_signal(signal.SIGTERM)
        process.wait(ENDS)


@pytest.mark.parametrize(
    "what, code",
    [(["agents"], 0), (["describe", "*0"], 2), (["doctor"], 0), (["connect", "--wait", "0"], 69), (MAKE, 1)],
    ids=["agents", "describe", "doctor", "connect", "make"],
)
def test_100_taken_agents_with_names_of_40_kb_are_told_in_short(
    what: str | list[str], code: int, tmp_path: Path
) -> None:
    with taken_agents(100) as server:
        ended = asked(tmp_path, what, server)
    assert ended.code == code
    assert "characters ..." in ended.out + ended.err
    assert what != MAKE or ended.err.splitlines()[-1].startswith("ospbridge.errors.AgentTaken: ")


def test_an_interface_with_names_of_60_kb_is_a_short_table_and_whole_as_json(tmp_path: Path) -> None:
    with long_interfaces() as server:
        ended = asked(tmp_path, ["describe", "?????0"], server)
        assert ended.code == 0
        assert len(ended.out.splitlines()) == 2 + 30
        data = json.loads(
            run(tmp_path, COMMAND, "describe", "?????0", "--json", "--simulator", server.address).out
        )
    assert {len(value["name"].encode()) for value in data["inputs"]} == {60_001, 60_002}


def test_a_daemon_tells_in_short_of_agents_with_long_names(tmp_path: Path) -> None:
    hub = f"unix:{tmp_path / 'hub'}"
    log = tmp_path / "log"
    with (
        TalkativeServer(5, name=40_000, inputs=3, input_name=60_000, free=True) as server,
        log.open("wb") as file,
    ):
        words = ("connect", "--simulator", server.address, "--hub", hub)
        with going_on(*words, log=file) as process:
            until(lambda: '"joined"' in log.read_text() or process.poll() is not None)
            ended = run(tmp_path, COMMAND, "status", "--hub", hub)
            process.send_signal(signal.SIGTERM)
            assert process.wait(ENDS) == 0
    assert_well(ended)
    assert ended.out.count("agent  ") == 5
    assert_short(log.read_text())
    (joined,) = [
        event for event in map(json.loads, log.read_text().splitlines()) if event["event"] == "joined"
    ]
    assert len(joined["agents"]) == 5
