"""Where the time of a step goes: `python -m tests.bench.flames DIRECTORY` draws flame graphs with py-spy.

`flame-direct.svg` and `flame-fleet.svg` are of the environment's process, `flame-hub.svg` and `flame-drive.svg` of the
daemon's. py-spy (pip install py-spy) may have to be allowed to look into processes (`kernel.yama.ptrace_scope`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import ospbridge  # noqa: F401  # registers the ids
from ospbridge.bench.relaying import driving, learner_of
from ospbridge.bench.stage import AGENT, START, Stage
from ospbridge.bench.subjects import ENVIRONMENT
from ospbridge.bench.vectors import vector_steps

RATE = 400
"""Samples a second."""
WARM_UP = 300
MANY = 32


@contextmanager
def recorded(pid: int, file: Path, seconds: float) -> Iterator[Callable[[], bool]]:
    """Samples of a process for so long; while its context is open, whether they are still being taken."""
    spy = Path(sys.executable).with_name("py-spy")
    # A process that is stopped for its samples would meet silence, and verify each of its steps from then on.
    command = [str(spy), "record", "--nonblocking", "--rate", str(RATE), "--duration", f"{seconds:.0f}"]
    with subprocess.Popen(
        [*command, "--output", str(file), "--pid", str(pid)], stdout=subprocess.DEVNULL
    ) as process:
        give_up = time.monotonic() + 10 * seconds
        yield lambda: process.poll() is None and time.monotonic() < give_up
        if process.wait(30):
            raise SystemExit(f"py-spy failed with exit code {process.returncode}")
    # In place of the command, with paths that mean nothing elsewhere.
    drawn = re.sub(
        r'(<text id="title"[^>]*>)[^<]*', rf"\g<1>{file.stem}, {RATE} samples a second", file.read_text()
    )
    file.write_text(drawn)


def direct(file: Path, seconds: float) -> None:
    """One environment with a scenario, and its simulator."""
    with Stage(inputs=8, outputs=16) as stage:
        made: gymnasium.Env[Any, Any] = gymnasium.make(
            ENVIRONMENT, simulator=stage.responder, agent=AGENT, scenario=stage.scenario, profile="document"
        )
        _play(made, file, seconds, os.getpid())


def hub(file: Path, seconds: float) -> None:
    """One environment at a daemon's hub."""
    with Stage(inputs=8, outputs=16) as stage:
        made: gymnasium.Env[Any, Any] = gymnasium.make(ENVIRONMENT, bridge=stage.hub, agent=AGENT, wait=START)
        _play(made, file, seconds, stage.daemon.process.pid)


def _play(made: gymnasium.Env[Any, Any], file: Path, seconds: float, pid: int) -> None:
    with closing(made):
        env: Any = made.unwrapped
        action = np.full(8, 0.5, np.float32)
        env.reset(seed=1)
        for _ in range(WARM_UP):
            env.step(action)
        with recorded(pid, file, seconds) as going:
            while going():
                for _ in range(WARM_UP):
                    env.step(action)


def fleet(file: Path, seconds: float) -> None:
    """A vector environment of 32 simulators that think for a millisecond, all at the same time."""
    with (
        Stage(inputs=8, outputs=16, simulators=MANY, think=0.001) as stage,
        vector_steps(MANY, 8, simulator=stage.responders, profile="document") as step,
        recorded(os.getpid(), file, seconds) as going,
    ):
        while going():
            step()


def drive(file: Path, seconds: float) -> None:
    """A daemon that acts for an agent with a policy of 64 x 64."""
    with (
        Stage(inputs=8, outputs=16) as stage,
        learner_of("--observations", "16", "--dist-inputs", "16") as learner,
        driving(stage.responder, learner) as daemon,
    ):
        learner.line(START)
        with recorded(daemon.process.pid, file, seconds) as going:
            while going():
                learner.line(START)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=["direct", "hub", "fleet", "drive"])
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    for draw in (direct, hub, fleet, drive):
        if given.only in (None, draw.__name__):
            draw(given.directory / f"flame-{draw.__name__}.svg", given.seconds)


if __name__ == "__main__":
    main()
