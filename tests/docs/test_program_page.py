"""The page on programs of one's own: each runs, does what the page says, and has types."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import pytest

from ospbridge import errors
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import free_port
from tests.envs.daemons import connected

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "program.md").read_text("utf-8")
PROGRAMS = dict(re.findall(r"<!-- program: (\w+\.py) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def address() -> Iterator[str]:
    with UdpSimulator(ArenaWorld(1), port=0) as simulator:
        yield str(simulator.address)


def run(name: str, *addresses: str) -> None:
    program = PROGRAMS[name]
    for port, address in zip((45454, 45455), addresses, strict=False):
        program = program.replace(f"127.0.0.1:{port}", address)
    exec(compile(program, name, "exec"), {"__name__": "__main__"})


class Slow(ArenaWorld):
    """So that it is stopped in the middle of an episode."""

    def __init__(self) -> None:
        super().__init__(1)

    def step(self) -> None:
        time.sleep(0.005)
        super().step()


def read_until(stream: IO[str], text: str) -> list[str]:
    lines: list[str] = []
    for line in stream:
        lines.append(line.strip())
        if text in line:
            break
    return lines


def test_every_program_of_the_page_is_run_here() -> None:
    blocks = re.findall(r"^```python$", PAGE, re.MULTILINE)
    assert len(blocks) == len(PROGRAMS)
    tests = Path(__file__).read_text("utf-8")
    assert [name for name in PROGRAMS if not re.search(rf"(run\(|PROGRAMS\[)\"{name}\"", tests)] == []


@pytest.mark.loopback
def test_the_controller_drives_and_each_step_ran_once(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run("drive.py", address)
    free, inputs, place, audit = capsys.readouterr().out.splitlines()
    assert free == "robot1 is free"
    assert "/Left/Wheel/DesiredVelocity from -1.0 to 1.0" in inputs
    assert re.fullmatch(r"it got to -?\d\.\d\d, -?\d\.\d\d", place)
    assert audit == "each step ran exactly once"


@pytest.mark.loopback
def test_variables_are_read_and_set(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("variables.py", address)
    *listed, then, refused = capsys.readouterr().out.splitlines()
    assert "/Sim/Arena/TopSpeed is 0.5 of type Double" in listed
    assert then == "0.25"
    assert refused == f"{address} could not parse 'fast' for /Sim/Arena/TopSpeed"


@pytest.mark.loopback
def test_a_variable_and_an_event_come_with_the_step(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("watch.py", address)
    assert re.fullmatch(r"it bumped after \d+(\.\d+)? s\n", capsys.readouterr().out)


@pytest.mark.loopback
def test_the_persistent_program_waits_for_a_simulator_and_survives_its_restart() -> None:
    program, port = PROGRAMS["persistent.py"], free_port()
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", program.replace("45454", str(port))], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    watchdog = threading.Timer(40, process.kill)
    watchdog.start()
    try:
        assert "nothing listens at" in process.stdout.readline()
        with UdpSimulator(Slow(), port=port):
            lines = read_until(process.stdout, "episode 1:")
        lines += read_until(process.stdout, "is gone")
        with UdpSimulator(ArenaWorld(1), port=port):
            lines += process.stdout.read().splitlines()
        assert process.wait(10) == 0
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
    assert [line.partition(":")[0] for line in lines if line.startswith("episode")] == [
        "episode 1",
        "episode 2",
        "episode 3",
    ]
    assert any("is gone" in line and "connect again" in line for line in lines)


@pytest.mark.loopback
def test_two_simulators_are_driven_side_by_side(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    with UdpSimulator(ArenaWorld(1), port=0) as other:
        run("both.py", address, str(other.address))
        told = capsys.readouterr().out
        assert sorted(line.partition(" ")[0] for line in told.splitlines()) == sorted(
            [address, str(other.address)]
        )


@pytest.mark.loopback
def test_an_agent_of_a_daemon_is_driven(
    address: str, runtime_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(address, default_hub()):
        run("attach.py")
    *_, reward, agent = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"reward -?\d+\.\d", reward)
    assert agent.startswith("robot1 playing")


def test_the_errors_of_its_table_are_there() -> None:
    table = PAGE.partition("| error | what happened")[2].partition("\n\n")[0]
    named = re.findall(r"`(\w+)`", table)
    assert len(named) > 8
    assert set(named) <= set(errors.__all__)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="needs the dependency group lint")
def test_a_strict_type_checker_has_nothing_to_say_about_its_programs(tmp_path: Path) -> None:
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *PROGRAMS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
