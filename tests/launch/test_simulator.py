"""Simulators that are launched: how they start, what is told where they do not, and that none is ever left."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from ospbridge.errors import SimulatorNotStarted, UsageError
from ospbridge.launch import logs, simulator
from ospbridge.launch.command import launch_spec
from ospbridge.launch.simulator import LaunchedSimulator, launch, stop_all
from tests.daemon.running import until

if TYPE_CHECKING:
    Start = Callable[..., LaunchedSimulator]

pytestmark = pytest.mark.loopback

LISTENS = (
    "import os, signal, socket, sys, time; s = socket.socket(type=socket.SOCK_DGRAM); "
    "s.bind(('127.0.0.1', int(sys.argv[1]))); print('up', os.environ.get('MARK'), os.getcwd(), flush=True); "
)
WAITS = "time.sleep(100)"


def program(code: str, **more: Any) -> dict[str, Any]:
    return {"command": [sys.executable, "-c", code, "{port}"], **more}


def listens(code: str = "", **more: Any) -> dict[str, Any]:
    """A program that listens, says so, does something more, and stays."""
    return program(LISTENS + code + WAITS, **more)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def started() -> Iterator[Start]:
    made: list[LaunchedSimulator] = []

    def start(table: dict[str, Any], **more: Any) -> LaunchedSimulator:
        made.extend(launch(launch_spec(table, **more)))
        return made[-1]

    yield start
    stop_all(made)


def cores_of(one: LaunchedSimulator) -> set[int]:
    assert one.pid is not None
    return os.sched_getaffinity(one.pid)


def said(one: LaunchedSimulator, lines: int) -> list[str]:
    """What it has said, once it is so much."""
    until(lambda: len(one.log.last_words(lines)) >= lines)
    return one.log.last_words(lines)


def test_it_listens_where_its_address_says_with_its_directory_and_variables(
    started: Start, tmp_path: Path
) -> None:
    one = started(listens(cwd=tmp_path, env={"MARK": "yes"}))
    assert one.alive
    assert one.address.host == "127.0.0.1"
    assert said(one, 1) == [f"up yes {tmp_path}"]


def test_it_runs_under_batch_from_its_first_instruction(started: Start) -> None:
    tells = "print(os.sched_getscheduler(0) == os.SCHED_BATCH, flush=True); "
    assert said(started(listens(tells)), 2)[-1] == "True"
    assert said(started(listens(tells), batch=False), 2)[-1] == "False"


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a core of its own needs a second one")
def test_it_has_a_core_of_its_own_that_its_owner_leaves_alone_until_it_ends(started: Start) -> None:
    before = os.sched_getaffinity(0)
    one = started(listens("print(os.environ.get('OSPB_OWN_CORE'), flush=True); "))
    assert said(one, 2)[-1] == "1"
    (core,) = cores_of(one)
    assert os.sched_getaffinity(0) == before - {core}
    one.stop()
    assert os.sched_getaffinity(0) == before


def test_it_runs_on_the_core_that_was_named(started: Start) -> None:
    core = min(os.sched_getaffinity(0))
    assert cores_of(started(listens(), pin=core)) == {core}


def test_what_the_system_does_not_allow_is_known_and_it_runs_without(started: Start) -> None:
    one = started(listens(), pin=4095)
    assert one.refused == {"pin": "Invalid argument"}
    assert one.alive


def test_a_fleet_as_large_as_the_machine_is_pinned_nowhere_and_each_writes_to_a_file(tmp_path: Path) -> None:
    cores = os.sched_getaffinity(0)
    made = launch(launch_spec(listens(log=tmp_path / "sim.log")), len(cores))
    try:
        assert len({each.address for each in made}) == len(cores)
        assert all(cores_of(each) == cores for each in made)
        assert sorted(tmp_path.glob("sim*.log")) == sorted(each.log.path for each in made)
    finally:
        stop_all(made)


@pytest.mark.parametrize(
    "code, told",
    [
        (
            "print('no world here'); raise SystemExit(3)",
            "ended before it answered, it ended with exit code 3; it said",
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            "ended before it answered, it was ended by SIGKILL, and said nothing",
        ),
    ],
)
def test_who_ends_at_once_is_told_with_its_last_words(code: str, told: str) -> None:
    with pytest.raises(SimulatorNotStarted, match=told):
        launch(launch_spec(program(code)))


def test_who_needs_a_display_is_told_what_to_do() -> None:
    with pytest.raises(SimulatorNotStarted, match="could not connect to display") as e:
        launch(launch_spec(program("print('qt.qpa.xcb: could not connect to display'); raise SystemExit(1)")))
    assert "xvfb-run" in e.value.hint


ELSEWHERE = LISTENS.replace("int(sys.argv[1])", "0") + WAITS
SILENT = "import time; print('thinking', flush=True); " + WAITS


@pytest.mark.parametrize(
    "code, hidden, where, hint",
    [
        (ELSEWHERE, False, r"but at UDP port \d+; it said last: up", "{port}"),
        (ELSEWHERE, True, "after 60 s; it said last: up", "give it more time"),
        (SILENT, False, "after 60 s; it said last: thinking", "give it more time"),
    ],
    ids=["elsewhere", "elsewhere, hidden", "nowhere"],
)
def test_who_does_not_listen_there_is_told_where_and_with_its_log(
    code: str, hidden: bool, where: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(process: psutil.Process, kind: str) -> None:
        raise FileNotFoundError("/proc/net/udp")  # as where a service has ProcSubset=pid

    if hidden:
        monkeypatch.setattr(psutil.Process, "net_connections", nothing)
    one = LaunchedSimulator(launch_spec(program(code)))
    try:
        one.start()
        said(one, 1)
        with pytest.raises(SimulatorNotStarted, match=rf"does not listen at 127\.0\.0\.1:\d+ {where}") as e:
            one.wait_ready(time.monotonic())
    finally:
        one.stop()
    assert hint in e.value.hint
    assert not one.alive


def test_one_that_cannot_be_had_ends_with_the_error() -> None:
    with pytest.raises(SimulatorNotStarted):
        launch(launch_spec(program("import time; time.sleep(99)", ready=0.01)))
    alive = (p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE)
    assert [p for p in alive if "time.sleep(99)" in p.cmdline()] == []


def test_a_file_that_no_system_executes_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "sim"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(SimulatorNotStarted, match="sim could not be launched: Exec format error"):
        launch(launch_spec([str(broken), "{port}"]))


def test_a_log_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    told = r"the log of the launched simulator cannot be written: .*file/a\.log"
    with pytest.raises(UsageError, match=told):
        launch(launch_spec(program(WAITS, log=tmp_path / "file" / "a.log")))


def test_a_large_log_is_copied_away_and_goes_on_from_the_start(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LARGEST", 1000)
    one = started(listens("print('x' * 2000, flush=True); sys.stdin.read(); "))
    until(lambda: one.log.path.stat().st_size > 2000)
    one.log.rotate()
    assert one.log.path.stat().st_size == 0
    assert one.log.path.with_name(f"{one.log.path.name}.1").stat().st_size > 2000


def test_only_so_many_logs_of_earlier_simulators_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "KEPT", 1)
    paths = []
    for _ in range(4):
        (one,) = launch(launch_spec(listens()))
        paths.append(one.log.path)
        one.stop()
    assert sum(path.exists() for path in set(paths)) <= 2


def test_what_it_has_started_itself_ends_with_it(started: Start) -> None:
    child = "import subprocess; p = subprocess.Popen(['sleep', '100']); print(p.pid, flush=True); "
    one = started(listens(child))
    grandchild = psutil.Process(int(said(one, 2)[-1]))
    one.stop()
    assert not one.alive
    psutil.wait_procs([grandchild], timeout=20)
    assert not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE


def test_one_that_heeds_no_request_is_ended_all_the_same(
    started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "ENDS_WITHIN", 0.1)
    one = started(listens("signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); "))
    said(one, 2)
    one.stop()
    assert one.end_told() == "it was ended by SIGKILL"
    one.stop()


def test_after_a_crash_it_is_started_again_at_the_same_address(started: Start) -> None:
    one = started(listens())
    assert one.pid is not None
    before, address = one.pid, one.address
    os.kill(before, signal.SIGKILL)
    assert one.has_ended()
    assert not one.proven
    one.restart()
    assert one.address == address
    assert one.pid not in {None, before}


def test_a_forked_child_ends_nothing_of_its_parents(started: Start) -> None:
    one = started(listens())
    child = os.fork()
    if child == 0:
        try:
            one.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert one.alive


def test_a_port_is_chosen_whatever_the_program_has_seeded_and_draws_nothing_of_that() -> None:
    before = random.getstate()
    assert simulator._free_port() in simulator.PORTS
    assert random.getstate() == before
