from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.loopback, pytest.mark.slow]

DEMO = [sys.executable, "-m", "ospbridge", "demo"]


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment by which the demo's processes are known, and whose temporary files are found."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    mark = f"OSPB_TEST_MARK={tmp_path}"
    yield {**os.environ, "TMPDIR": str(temporary), "OSPB_TEST_MARK": str(tmp_path)}
    assert not _processes(mark)
    assert not list(temporary.iterdir())


def _processes(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{mark}\0" in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text(errors="replace"))
    return found


def test_it_tells_what_happened_and_what_to_try_next(surroundings: dict[str, str]) -> None:
    result = subprocess.run(
        [*DEMO, "--steps", "250"], env=surroundings, capture_output=True, text=True, timeout=50, check=False
    )
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert re.search(r"simulator at 127\.0\.0\.1:\d+, hosting two-wheeled robots", out)
    assert "agents: robot1 (Agent), robot2 (Agent)" in out
    assert "robot1: observation Box(12) in [-1, 1], action Box(2) in [-1, 1]" in out
    assert "robot1: 250 steps done" in out
    head = next(line for line in out.splitlines() if line.startswith("AGENT"))
    assert head.split()[:2] == ["AGENT", "STEPS"]
    for robot in ("robot1", "robot2"):
        (row,) = [line.split() for line in out.splitlines() if re.match(rf"{robot} +250 ", line)]
        assert row[-2] == "2"  # episodes of 100 steps
        float(row[-1])
    for command in ("sim --arena --robots 2", "describe robot1", "connect"):
        assert f"  python -m ospbridge {command}\n" in out


def test_the_same_seed_brings_the_same_returns(surroundings: dict[str, str]) -> None:
    def returns() -> list[str]:
        args = ["--steps", "100", "--seed", "5"]
        out = subprocess.run(
            [*DEMO, *args], env=surroundings, capture_output=True, timeout=50, check=True
        ).stdout
        return [line.split()[-1] for line in out.decode().splitlines() if re.match(r"robot\d +100 ", line)]

    first = returns()
    assert len(set(first)) == 2
    assert returns() == first


def test_a_path_for_temporary_files_without_room_for_a_socket_is_passed_by(
    surroundings: dict[str, str], tmp_path: Path
) -> None:
    long = tmp_path / ("d" * 100)
    long.mkdir()
    result = subprocess.run(
        [*DEMO, "--steps", "20"],
        capture_output=True,
        text=True,
        timeout=60,
        env=surroundings | {"TMPDIR": str(long)},
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (hub,) = re.findall(r"daemon at unix:(\S+);", result.stdout)
    assert not Path(hub).parent.exists()


def test_any_environment_can_be_shown(surroundings: dict[str, str]) -> None:
    result = subprocess.run(
        [*DEMO, "--steps", "60", "--env", "CartPole-v1"],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "hosting CartPole-v1" in result.stdout
    assert "sim --env CartPole-v1 --copies 2" in result.stdout


def test_an_environment_that_is_none_is_told_by_who_could_not_host_it(surroundings: dict[str, str]) -> None:
    result = subprocess.run(
        [*DEMO, "--env", "NoSuch-v0"],
        env=surroundings,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert result.returncode == 78
    error, hint = result.stderr.splitlines()
    assert error.startswith("Error: the simulator ended (exit code 78): Gymnasium cannot make 'NoSuch-v0'")
    assert hint.startswith("Hint: python -c 'import gymnasium")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("until", ["simulator at", "daemon at", "stepping"])
def test_a_stop_ends_everything(surroundings: dict[str, str], number: signal.Signals, until: str) -> None:
    with subprocess.Popen(
        [*DEMO, "--steps", "1000000"],
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(until):
                break
        if until == "stepping":
            time.sleep(1.5)
        process.send_signal(number)
        assert process.wait(20) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_a_terminal_sees_bars_and_a_table(surroundings: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*DEMO, "--steps", "100"],
        env={**surroundings, "TERM": "xterm", "COLUMNS": "120"},
        stdout=theirs,
        stderr=theirs,
        stdin=theirs,
    ) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while data := os.read(ours, 65_536):
                seen += data
        os.close(ours)
        assert process.wait(20) == 0
    text = seen.decode()
    assert "100/100" in text
    assert "─" in text
    assert "MEAN RETURN" in text
