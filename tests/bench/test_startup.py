"""What is followed until it is of use, and what is told of it. No times: only which programs come to where."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from ospbridge.bench import startup
from ospbridge.bench.processes import ProgramFailed
from ospbridge.bench.startup import FLOOR, STARTS, Start, measure_startup
from ospbridge.bench.usage import processor_seconds, resident
from ospbridge.cli import main

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.loopback


@pytest.mark.slow
def test_every_subject_comes_to_where_it_is_of_use_and_leaves_the_agent_free() -> None:
    # Two turns each: the second finds what the first gave back.
    report = measure_startup(runs=1)
    assert [row.name for row in report.rows] == list(STARTS)
    for row in report.rows:
        assert 0.0 < row.values["processor_least_ms"] <= row.values["processor_ms"], row
        assert 0.0 < row.values["wall_least_ms"] <= row.values["wall_ms"], row
        assert set(row.ratios) == {"processor", "wall"}


def test_ratios_are_those_of_the_least() -> None:
    report = measure_startup(runs=2, only=["import ospbridge"])
    floor, imported = report.rows
    assert floor.name == FLOOR
    assert floor.ratios == {"processor": 1.0, "wall": 1.0}
    for kind, ratio in imported.ratios.items():
        expected = imported.values[f"{kind}_least_ms"] / floor.values[f"{kind}_least_ms"]
        assert math.isclose(ratio, expected)


def test_each_turn_is_told_and_the_first_of_each_does_not_count() -> None:
    told: list[str] = []
    measure_startup(runs=2, only=["import ospbridge"], told=told.append)
    assert told == [FLOOR, "import ospbridge"] * 3


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(Start(("-c", "raise SystemExit('no luck')")), id="before its end"),
        pytest.param(Start(("-c", "raise SystemExit('no luck')"), "line"), id="before its line"),
        pytest.param(Start(("-c", "raise SystemExit('no luck')", "{new}"), "hub"), id="before its hub"),
    ],
)
def test_a_program_that_fails_is_told_with_what_it_said(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STARTS, "failing", start)
    with pytest.raises(ProgramFailed, match=r"'failing' failed with exit code 1: no luck"):
        measure_startup(runs=1, only=["failing"])


def test_a_program_that_comes_nowhere_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "WITHIN", 0.5)
    monkeypatch.setitem(STARTS, "waiting", Start(("-c", "import time; time.sleep(60)")))
    with pytest.raises(ProgramFailed, match="'waiting' failed with exit code -9"):
        measure_startup(runs=1, only=["waiting"])


def test_the_processor_time_of_a_running_process_has_all_its_threads() -> None:
    busy = "import threading, time\ndef work():\n while time.thread_time() < 0.2: pass\n"
    busy += "t = threading.Thread(target=work); t.start(); t.join(); print('done', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        # The thread is gone; what it took is not.
        assert processor_seconds(process.pid) >= 0.2
        assert resident(process.pid) > 1_000_000
        process.communicate("\n", timeout=10)
    with pytest.raises(ProcessLookupError):
        processor_seconds(process.pid)


def run(*arguments: str) -> Sequence[str]:
    result = CliRunner().invoke(main, ["bench", "startup", "--runs", "1", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_the_command_tells_the_subjects_that_were_asked_for_as_a_table_and_as_json() -> None:
    head, *lines = run("--only", "ospbridge --help")
    assert head.split()[0] == "WAY"
    assert [line.partition("  ")[0] for line in lines] == [FLOOR, "ospbridge --help"]
    (told,) = run("--only", "ospbridge --help", "--json")
    figures = json.loads(told)
    assert (figures["measured"], figures["runs"]) == ("startup", 1)
    for each in figures["subjects"]:
        assert set(each) == {
            *("name", "ratios", "processor_ms", "processor_least_ms", "wall_ms", "wall_least_ms")
        }
        assert set(each["ratios"]) == {"processor", "wall"}


def test_a_subject_that_is_none_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["bench", "startup", "--only", "teleport"])
    assert result.exit_code == 2
    assert "'teleport' begins no name; there are 'python -c pass', " in result.stderr
