"""Five seconds in which a process does not run (SIGSTOP, a busy machine, a debugger): no step is lost or run twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.ledger import Ledger
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import PROGRAM, Daemon, LocalDaemon, await_lines, player

pytestmark = [pytest.mark.loopback, pytest.mark.timeout(120)]
STOPPED = 5.0
STEPS = 60
GIVEN = [number / 1024 for number in range(STEPS)]


def hold(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STOPPED)
    os.kill(pid, signal.SIGCONT)


def play(pid: int, **where: Any) -> None:
    """``STEPS`` steps, in one of which that process is stopped."""
    env = gymnasium.make("ospbridge/Agent-v0", **where)
    env.reset(seed=1)
    longest = 0.0
    stopping = threading.Thread(target=hold, args=(pid,))
    for number, given in enumerate(GIVEN):
        if number == 20:
            stopping.start()
            time.sleep(0.05)
        begun = time.monotonic()
        *_, truncated, info = env.step(np.full(1, given, np.float32))
        assert not truncated, info["reason"]
        longest = max(longest, time.monotonic() - begun)
    stopping.join(STOPPED + 10)
    assert longest > STOPPED / 2
    env.close()


def ran(path: Path, agent: str = "agent") -> list[float]:
    """The inputs of the steps behind the reset's neutral one."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    steps = [record["agents"][agent]["inputs"][0] for record in records if record["kind"] == "step"]
    return steps[1 : 1 + STEPS]


def a_simulator_is_stopped(directory: Path) -> None:
    path = directory / "simulator.jsonl"
    options = ("--synthetic", "1,1,0", "--port", "0", "--ledger", str(path))
    process = subprocess.Popen([*PROGRAM, "sim", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        play(process.pid, simulator=process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate(timeout=10)
    assert ran(path) == GIVEN


def a_daemon_is_stopped(directory: Path) -> None:
    path, hub = directory / "daemon.jsonl", f"unix:{directory}/d"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT, ledger=ledger) as simulator,
        Daemon(simulator.address, "--hub", hub, directory=directory, hub=hub) as daemon,
    ):
        play(daemon.process.pid, bridge=hub)
        assert daemon.end() == 0
    assert ran(path) == GIVEN


def an_environment_is_stopped(directory: Path) -> None:
    path, hub = directory / "environment.jsonl", f"unix:{directory}/e"
    with (
        Ledger(path) as ledger,
        UdpSimulator(SyntheticWorld(1, 1, agents=2), port=0, profile=DOCUMENT, ledger=ledger) as simulator,
        LocalDaemon(simulator.address, hub=directory / "e", quorum=2),
        player("agent2", STEPS, 0.5, hub) as other,
    ):
        play(other.pid, bridge=hub, agent="agent1")
        await_lines(other, "attached", "playing", "played")
    assert ran(path, "agent1") == GIVEN
    assert ran(path, "agent2") == [0.5] * STEPS


def test_a_process_that_does_not_run_for_five_seconds_costs_no_step(runtime_directory: Path) -> None:
    cases = (a_simulator_is_stopped, a_daemon_is_stopped, an_environment_is_stopped)
    with ThreadPoolExecutor(len(cases)) as pool:
        for case in [pool.submit(case, runtime_directory) for case in cases]:
            case.result(100)
