"""What a daemon costs that has nothing to do, and what asking for help costs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ospbridge.bench.cores import processor_seconds
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import PROGRAM, Daemon

pytestmark = pytest.mark.loopback
SECONDS = 10.0
HELP = [*PROGRAM, "--help"]


def test_an_idle_daemon_takes_one_percent_of_a_core_and_80_megabytes_at_most(tmp_path: Path) -> None:
    with (
        UdpSimulator(SyntheticWorld(2, 3, agents=4), port=0, profile=DOCUMENT) as simulator,
        Daemon(simulator.address, directory=tmp_path) as daemon,
    ):
        time.sleep(1.0)
        before = processor_seconds(daemon.process.pid)
        began = time.monotonic()
        time.sleep(SECONDS)
        spent = processor_seconds(daemon.process.pid) - before
        share = spent / (time.monotonic() - began)
        size = psutil.Process(daemon.process.pid).memory_info().rss
    assert share <= 0.01, f"{share:.2%} of a core"
    assert size <= 80e6, f"{size / 1e6:.1f} MB"


def test_help_takes_five_times_as_long_as_python_at_most() -> None:
    # The least of many: what other programs do meanwhile can only add.
    nothing = [sys.executable, "-c", "pass"]
    seconds = {
        name: min(cost(command) for _ in range(15)) for name, command in (("", nothing), ("help", HELP))
    }
    assert seconds["help"] <= 5.0 * seconds[""], seconds


def cost(command: list[str]) -> float:
    """Seconds of processor time."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, process.returncode, used = os.wait4(process.pid, 0)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime
