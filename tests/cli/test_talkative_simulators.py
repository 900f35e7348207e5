"""Simulators that say far too much: whatever asks them ends, in little memory, with short lines that can be read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.cli.programs import WITHIN, until
from tests.cli.talkative import TalkativeServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


def command(server: TalkativeServer, directory: Path, *words: str) -> Ended:
    hub = ["--hub", f"unix:{directory / 'hub'}"] if words[0] == "connect" else []
    ended = run(directory, COMMAND, *words, *hub, "--simulator", server.address)
    assert_well(ended)
    assert "Traceback" not in ended.err
    return ended


def taken_agents(count: int = 3000) -> TalkativeServer:
    return TalkativeServer(count, name=40_000, free=False)


def long_interfaces() -> TalkativeServer:
    """72 MB in all."""
    return TalkativeServer(40, inputs=30, input_name=60_000, free=True)


# --- more than is kept ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["agents"], ["describe", "*0"], ["connect", "--wait", "0"]], ids=lambda words: words[0]
)
def test_3000_names_of_40_kb_are_an_error_that_says_what_came(words: list[str], tmp_path: Path) -> None:
    with taken_agents() as server:
        ended = command(server, tmp_path, *words)
    assert ended.code == 69
    assert "16,777,216 bytes" in ended.err


def test_doctor_tells_of_3000_names_of_40_kb_as_a_problem(tmp_path: Path) -> None:
    with taken_agents() as server:
        ended = command(server, tmp_path, "doctor")
    assert ended.code == 1
    assert "16,777,216 bytes" in ended.out


@pytest.mark.parametrize(
    "code, server", [(MAKE, taken_agents), (MAKE_VEC, long_interfaces)], ids=["make", "make_vec"]
)
def test_environments_are_not_made_of_what_is_more_than_is_kept(
    code: str, server: Any, tmp_path: Path
) -> None:
    with server() as talkative:
        ended = run(tmp_path, code, talkative.address)
    assert_well(ended)
    assert ended.code == 1
    assert "16,777,216 bytes" in ended.err.splitlines()[-1]


def test_a_daemon_does_not_join_72_mb_of_names(tmp_path: Path) -> None:
    with long_interfaces() as server:
        ended = command(server, tmp_path, "connect", "--wait", "0")
    assert ended.code == 69
    assert "16,777,216 bytes" in ended.err


@pytest.mark.parametrize("server", [taken_agents, long_interfaces])
def test_status_tells_in_short_of_a_daemon_that_such_a_simulator_keeps_busy(
    server: Any, tmp_path: Path
) -> None:
    hub = f"unix:{tmp_path / 'hub'}"
    with server() as talkative, going_on("connect", "--simulator", talkative.address, "--hub", hub):
        until(lambda: talkative.lists)
        ended = run(tmp_path, COMMAND, "status", "--hub", hub)
    assert_well(ended)


@pytest.mark.parametrize(
    "words", [["agents"], ["describe", "*0"], ["doctor"], ["connect"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("server", [taken_agents, long_interfaces])
def test_sigterm_ends_each_command_while_names_come_without_end(
    words: list[str], server: Any, tmp_path: Path
) -> None:
    hub = ["--hub", f"unix:{tmp_path / 'hub'}"] if words == ["connect"] else []
    with server() as talkative, going_on(*words, *hub, "--simulator", talkative.address) as process:
        until(lambda: talkative.lists or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        process.wait(ENDS)


# --- as much as is kept --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [["agents"], ["describe", "*0"], ["doctor"], ["connect", "--wait", "0"]],
    ids=lambda words: words[0],
)
def test_100_taken_agents_with_names_of_40_kb_are_told_in_short(words: list[str], tmp_path: Path) -> None:
    with taken_agents(100) as server:
        ended = command(server, tmp_path, *words)
    told = ended.out + ended.err
    assert "characters ..." in told
    assert ended.code == {"describe": 2, "connect": 69}.get(words[0], 0)


def test_an_environment_of_taken_agents_with_long_names_is_refused_in_short(tmp_path: Path) -> None:
    with taken_agents(100) as server:
        ended = run(tmp_path, MAKE, server.address)
    assert_well(ended)
    assert ended.err.splitlines()[-1].startswith("ospbridge.errors.AgentTaken: ")


def test_an_interface_with_names_of_60_kb_is_a_short_table_and_whole_as_json(tmp_path: Path) -> None:
    with long_interfaces() as server:
        ended = command(server, tmp_path, "describe", "?????0")
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
