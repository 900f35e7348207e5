"""`ospbridge demo`: what it shows, and that it leaves nothing behind, however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.programs import on_a_terminal, program, ran

pytestmark = pytest.mark.loopback

STEPS, SEED = 100, 5


@pytest.fixture
def surroundings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment by which the demo's processes are known, and whose temporary files are found."""
    temporary = tmp_path / "t"
    temporary.mkdir()
    mark = f"OSPB_TEST_MARK={tmp_path}"
    yield {**os.environ, "TMPDIR": str(temporary), "OSPB_TEST_MARK": str(tmp_path)}
    # The guardian ends a moment behind who it is for.
    give_up = time.monotonic() + 30
    while _processes(mark) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not _processes(mark)
    assert not list(temporary.iterdir())


def _processes(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{mark}\0" in (process / "environ").read_text(errors="replace"):
                found.append((process / "cmdline").read_text(errors="replace"))
    return found


def test_it_tells_what_happened_and_what_to_try_next(surroundings: dict[str, str], tmp_path: Path) -> None:
    # Its path has no room for a socket, so that another place is taken.
    long = tmp_path / ("d" * 100)
    long.mkdir()
    options = ("--steps", str(STEPS), "--seed", str(SEED))
    result = ran("demo", *options, env=surroundings | {"TMPDIR": str(long)})
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert re.search(r"simulator at 127\.0\.0\.1:\d+, hosting two-wheeled robots", out)
    (hub,) = re.findall(r"daemon at unix:(\S+);", out)
    assert not Path(hub).parent.exists()
    assert "agents: robot1 (Agent), robot2 (Agent)" in out
    assert "robot1: observation Box(12) in [-1, 1], action Box(2) in [-1, 1]" in out
    assert f"robot1: {STEPS} steps done" in out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if re.match(r"robot\d +100 ", line)}
    assert [row[-2] for row in rows.values()] == ["1", "1"]  # episodes of 100 steps
    for command in ("sim --arena --robots 2", "describe robot1", "connect"):
        assert f"  python -m ospbridge {command}\n" in out

    # The same seed brings the same returns, and a terminal sees bars and a table.
    seen = on_a_terminal("demo", *options, **surroundings)
    for shown in (f"{STEPS}/{STEPS}", "─", "MEAN RETURN"):
        assert shown in seen
    returns = [row[-1] for row in rows.values()]
    assert len(set(returns)) == 2
    assert re.findall(r"robot\d[^\n]* (-?\d+\.\d+)\s*[^\n\d]*\n", seen)[-2:] == returns


def test_an_environment_that_is_none_is_told_by_who_could_not_host_it(surroundings: dict[str, str]) -> None:
    result = ran("demo", "--env", "NoSuch-v0", env=surroundings)
    assert result.returncode == 78
    error, hint = result.stderr.splitlines()
    assert error.startswith("Error: the simulator ended (exit code 78): Gymnasium cannot make 'NoSuch-v0'")
    assert hint.startswith("Hint: python -c 'import gymnasium")


@pytest.mark.parametrize(
    "until, number", [("daemon at", signal.SIGTERM), ("stepping", signal.SIGINT)], ids=["before", "during"]
)
def test_a_stop_ends_everything(surroundings: dict[str, str], number: signal.Signals, until: str) -> None:
    with subprocess.Popen(
        program("demo", "--steps", 1000000, "--env", "CartPole-v1"),
        env=surroundings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = []
        for line in process.stdout:
            told.append(line)
            if line.startswith(until):
                break
        process.send_signal(number)
        assert process.wait(60) == 130
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert any("hosting CartPole-v1" in line for line in told)
