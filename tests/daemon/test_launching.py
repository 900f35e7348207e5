"""Simulators that the daemon launches: started again whenever they end, told of, and never left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest

from ospbridge.cli.status import launched_told
from ospbridge.daemon import launching
from ospbridge.daemon.launching import SimulatorLauncher
from ospbridge.daemon.settings import Settings
from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import SessionLost, SimulatorNotStarted, UsageError
from ospbridge.hub.status import LaunchStatus
from ospbridge.interface import Endpoint
from ospbridge.launch import cores, logs, simulator
from ospbridge.launch.command import LaunchSpec, launch_spec
from ospbridge.session.rebuild import CAPACITY
from tests.daemon.running import (
    WITHIN,
    Daemon,
    LocalDaemon,
    at_once,
    free_port,
    run_here,
    seat_of,
    until,
    values,
)

pytestmark = [pytest.mark.loopback, pytest.mark.timeout(300)]
KILLS = 20
THINK = 0.01
ANYWHERE = Endpoint("127.0.0.1", 0)
KILLED = "the launched simulator is gone: it was ended by SIGKILL"
WORLD = f"""
import sys
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
print("the scene is loaded", flush=True)
UdpSimulator(SyntheticWorld(2, 3, think={THINK}), port=int(sys.argv[1])).run()
"""
LISTENS_AND_ENDS = """
import os, socket, sys, time
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(('127.0.0.1', int(sys.argv[1])))
print('no scene', flush=True)
time.sleep(0.1)
os._exit(3)
"""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def program(code: str = WORLD) -> LaunchSpec:
    """On whatever core: the tests beside this one need theirs."""
    return launch_spec({"command": [sys.executable, "-c", code, "{port}"]}, pin=False)


def launching_daemon(code: str = WORLD, at: Endpoint = ANYWHERE, *, ready: bool = True) -> LocalDaemon:
    return LocalDaemon(at, launch=program(code), ready=ready)


def launched(daemon: LocalDaemon | Daemon) -> LaunchStatus:
    found = daemon.status().launched
    assert found is not None
    return found


def pid_of(daemon: LocalDaemon | Daemon) -> int:
    pid = launched(daemon).pid
    assert pid is not None
    return pid


def gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def started_again(daemon: LocalDaemon, times: int) -> None:
    until(lambda: launched(daemon).restarts == times and daemon.conductor.ready)


def until_cut(seat: AgentHandle) -> str:
    give_up = time.monotonic() + WITHIN
    while not (feedback := seat.step(values(0.25))).truncated:
        assert time.monotonic() < give_up
    return feedback.reason


def test_a_simulator_that_is_killed_again_and_again_is_started_again_and_each_environment_is_told(
    sample: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "PROVEN", 0.0)
    kills = sorted(sample(range(0, KILLS, 2), 2) + sample(range(1, KILLS, 2), 2))
    with launching_daemon() as daemon, closing(seat_of(None)) as seat:
        address = daemon.status().simulator
        seat.reset(1)
        for number in kills:
            assert not any(seat.step(values(0.25)).truncated for _ in range(3))
            pid = pid_of(daemon)
            killer = threading.Timer(THINK / 2 if number % 2 else 0.0, os.kill, (pid, signal.SIGKILL))
            killer.start()
            assert until_cut(seat).endswith(KILLED)
            killer.join(10)
            seat.reset(number + 2)
            assert pid_of(daemon) != pid
        assert not seat.step(values(0.25)).truncated
        found = daemon.status()
        assert (found.simulator, found.rebuilds) == (address, len(kills))
        assert launched(daemon).restarts == len(kills)
        assert len(daemon.lines("simulator_launched")) == len(kills) + 1
        assert [line["reason"] for line in daemon.lines("simulator_ended")] == [
            "it was ended by SIGKILL; it said last: the scene is loaded"
        ] * len(kills)
        # Where each had lived for long enough it cost nothing.
        joiner = daemon.conductor.supervisor._joiner
        assert joiner is not None
        budget = joiner.budget
        assert budget is not None
        assert budget._left == CAPACITY


def test_one_that_ends_while_nobody_steps_is_started_again() -> None:
    with launching_daemon() as daemon:
        os.kill(pid_of(daemon), signal.SIGKILL)
        started_again(daemon, 1)
        with closing(seat_of(None)) as seat:
            seat.reset(1)
            assert not seat.step(values(0.5)).truncated
            os.kill(pid_of(daemon), signal.SIGKILL)
            # Its driver says nothing meanwhile, and is told with its next step.
            started_again(daemon, 2)
            assert seat.step(values(0.5)).reason == KILLED
            seat.reset(2)
            assert not seat.step(values(0.5)).truncated


def test_who_waits_for_others_when_it_ends_is_told_at_once() -> None:
    with launching_daemon(WORLD.replace("2, 3,", "2, 3, agents=2,")) as daemon:
        one, other = seat_of("agent1"), seat_of("agent2")
        at_once(lambda: one.reset(1), lambda: other.reset(1))

        def kill() -> None:
            until(lambda: daemon.conductor.lockstep.missing == 1)
            os.kill(pid_of(daemon), signal.SIGKILL)

        told: list[str] = []
        at_once(kill, lambda: told.append(one.step(values(0.5)).reason))
        assert [*told, other.step(values(0.5)).reason] == [KILLED] * 2
        at_once(lambda: one.reset(2), lambda: other.reset(2))
        one.close()
        other.close()


def test_one_that_ends_at_once_again_and_again_is_given_up_with_what_it_said(impatient: None) -> None:
    with launching_daemon(LISTENS_AND_ENDS, ready=False) as daemon:
        assert daemon.wait() == SessionLost.exit_code
    assert isinstance(daemon.error, SessionLost)
    assert "ended too often (10 times, one is forgiven a minute)" in daemon.error.message
    assert daemon.error.message.endswith("it ended with exit code 3; it said last: no scene")
    assert len(daemon.lines("simulator_launched")) == CAPACITY + 1


def test_one_that_does_not_come_up_at_first_ends_the_daemon_with_what_it_said() -> None:
    with launching_daemon("print('no scene'); raise SystemExit(3)", ready=False) as daemon:
        assert daemon.wait() == SimulatorNotStarted.exit_code
    assert "it ended with exit code 3; it said last: no scene" in str(daemon.error)


def test_a_slow_start_is_told_by_the_status() -> None:
    with launching_daemon("import time; time.sleep(99)", ready=False) as daemon:
        until(lambda: launched(daemon).pid is not None)
        assert daemon.status().connection == f"launching {Path(sys.executable).name}"
        pid = pid_of(daemon)
        assert daemon.end() == 0
        assert gone(pid)


def test_a_port_that_another_process_has_is_told_with_its_name() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        taken = Endpoint("127.0.0.1", other.getsockname()[1])
        with launching_daemon(at=taken, ready=False) as daemon:
            assert daemon.wait() == SimulatorNotStarted.exit_code
    me = f"process {os.getpid()} ({shlex.join(psutil.Process().cmdline())})"
    assert isinstance(daemon.error, SimulatorNotStarted)
    assert daemon.error.message.endswith(f"cannot be launched at {taken}: {me} listens there already")
    assert daemon.lines("simulator_launched") == []


def test_a_program_that_is_not_there_is_told_before_anything_starts() -> None:
    done = run_here("connect", "--launch", "no-such-simulator -p {port}")
    assert done.exit_code == UsageError.exit_code
    assert "there is no program 'no-such-simulator' to launch on PATH" in done.output


def test_it_is_launched_at_the_address_that_is_configured_and_its_log_is_rotated_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launching, "LOG_EVERY", 0.0)
    monkeypatch.setattr(logs, "LARGEST", 1000)
    address = Endpoint("127.0.0.1", free_port())
    with launching_daemon(at=address) as daemon:
        assert daemon.status().simulator == str(address)
        log = Path(launched(daemon).log)
        assert log.read_text() == "the scene is loaded\n"
        with log.open("a") as file:
            file.write("x" * 2000)
        until(lambda: log.stat().st_size == 0)
        assert "x" * 2000 in log.with_name(f"{log.name}.1").read_text()


@pytest.mark.parametrize(
    "usable, simulators, own",
    [({0, 1}, 1, None), ({0, 1, 2}, 1, 2), ({0, 1, 2}, 2, None), ({0, 1, 2, 3}, 2, 3)],
)
def test_it_has_a_core_of_its_own_where_daemon_and_environments_keep_one_each(
    usable: set[int], simulators: int, own: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[set[int]] = []
    monkeypatch.setattr(cores, "_affinity", lambda: left[-1] if left else usable)
    monkeypatch.setattr(cores, "_set_affinity", left.append)
    spec = launch_spec("true {port}")
    launcher = SimulatorLauncher(Settings(hub=Path("hub"), simulator=ANYWHERE, launch=spec), of=simulators)
    assert launcher.status.core == own
    assert left == ([] if own is None else [usable - {own}])
    launcher.close()
    assert left[-1:] == ([] if own is None else [usable])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_whatever_ends_the_daemon_no_simulator_is_left(tmp_path: Path, number: int) -> None:
    """One that runs under SCHED_BATCH, on the core that the configuration names, and ends for no SIGTERM."""
    world, file, core = tmp_path / "world.py", tmp_path / "osp.toml", min(os.sched_getaffinity(0))
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print"
    world.write_text(WORLD.replace("print", deaf))
    file.write_text(
        f'[[simulator]]\n[simulator.launch]\ncommand = "{sys.executable} {world} {{port}}"\npin = {core}\n'
    )
    with Daemon(None, "--config", str(file), directory=tmp_path) as daemon:
        found, pid = launched(daemon), pid_of(daemon)
        assert (found.batch, found.core) == (True, core)
        assert os.sched_getscheduler(pid) == os.SCHED_BATCH
        assert os.sched_getaffinity(pid) == {core}
        expected = -number if number == signal.SIGKILL else 0
        assert daemon.end(number) == expected, daemon.log.read_text()
        assert number == signal.SIGKILL or gone(pid)
        until(lambda: gone(pid))


def test_status_and_top_show_it() -> None:
    with launching_daemon() as daemon:
        found = launched(daemon)
        name = Path(sys.executable).name
        told = f"{name}: pid {found.pid} (SCHED_BATCH), 0 restarts, log {found.log}"
        assert f"launched    {told}" in run_here("status").stdout.splitlines()
        said: dict[str, Any] = json.loads(run_here("status", "--json").stdout)["launched"]
        assert said == {
            "program": name,
            "pid": found.pid,
            "restarts": 0,
            "log": found.log,
            "batch": True,
            "core": None,
        }
        assert f"  launched {told}" in run_here("top", "--once").stdout.splitlines()
    away = LaunchStatus("NerdSim", None, 1, "/tmp/a.log", core=3)
    assert launched_told(away) == "NerdSim: does not run (core 3), 1 restart, log /tmp/a.log"
