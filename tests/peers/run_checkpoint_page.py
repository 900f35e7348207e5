"""The page on RLlink's program that saves what it learned, as it stands there: killed, and started again.

A program, not a test. --python is that of a virtual environment with Ray 2.49 or later and msgpack-numpy; ospbridge
runs in this one, and its daemon plays all the while. What the second server learns from must have been decided by the
weights that the first one saved, or by newer ones.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.peers.ports import free_port

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "rllink.md").read_text()
PROGRAM = (sys.executable, "-m", "ospbridge")
ITERATIONS = 4
"""Of each of the two servers."""
AS_GOOD = 2.0
"""Times the mean return of untrained weights that the restored ones must have at least."""
WITHIN = 240.0
"""Seconds for each of them."""
NUMBER = re.compile(r'"weights_seq_no": ?(\d+)')


def learner(port: int) -> str:
    """The page's first program, with the last lines of the one that saves, and a line for each iteration."""
    first = re.search(r"```python\n(import gymnasium.*?)^algorithm = ", PAGE, flags=re.DOTALL | re.MULTILINE)
    saving = re.search(r"<!-- program: checkpoint -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
    if first is None or saving is None or '"port": 5555' not in first.group(1):
        sys.exit("the page has no such programs")
    return (first.group(1) + saving.group(1)).replace('"port": 5555', f'"port": {port}')


def numbers(log: Path) -> list[int]:
    """Of the weights that acted in the episodes so far."""
    return [int(number) for number in NUMBER.findall(log.read_text())]


def served(python: str, folder: Path) -> list[float]:
    """The mean returns that the program prints until it is killed, its latest iteration saved."""
    environment = {
        **os.environ,
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
    }
    told = folder / "told"
    with (
        told.open("w") as output,
        subprocess.Popen(
            [python, "learn.py"],
            stdout=output,
            text=True,
            env=environment,
            cwd=folder,
            start_new_session=True,
        ) as server,
    ):
        give_up = time.monotonic() + WITHIN
        try:
            while len(returns := lines(told)) <= ITERATIONS:
                if server.poll() is not None or time.monotonic() > give_up:
                    sys.exit(
                        f"the server printed {returns} within {WITHIN:g} s, and ended with {server.poll()}"
                    )
                time.sleep(0.2)
        finally:
            # As where a machine fails; its own processes end with it.
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
    return returns


def lines(told: Path) -> list[float]:
    return [float(line) for line in told.read_text().splitlines() if re.fullmatch(r"\d+\.\d+", line)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True)
    arguments = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory:
        folder = Path(directory)
        os.environ["XDG_RUNTIME_DIR"] = directory
        (folder / "learn.py").write_text(learner(port))
        started: list[subprocess.Popen[Any]] = []
        try:
            simulator = subprocess.Popen(
                [*PROGRAM, "sim", "--env", "CartPole-v1", "--port", "0"],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            started.append(simulator)
            assert simulator.stdout is not None
            address = simulator.stdout.readline().strip()
            log = folder / "daemon.log"
            command = [*PROGRAM, "connect", "--simulator", address, "--scenario", "cartpole"]
            command += [
                "--rllink",
                f"127.0.0.1:{port}",
                "--rllink-mode",
                "drive",
                "--rllink-env-steps",
                "1000",
            ]
            command += ["--log-json"]
            with log.open("w") as output:
                started.append(subprocess.Popen(command, stderr=output, stdout=output))
            # Not resolved, which would lead out of its virtual environment; the programs run elsewhere.
            python = str(Path(arguments.python).absolute())
            before = served(python, folder)
            acted = numbers(log)
            behind = served(python, folder)
            since = numbers(log)[len(acted) :]
        finally:
            for process in started:
                if process.poll() is None:
                    process.terminate()
                    process.wait(40)
    print("mean returns:", _listed(before), "and then", _listed(behind))
    print("weights of the episodes:", _listed(acted), "and then", _listed(since))
    # Until it restores its checkpoint the second server gives untrained weights: number 0.
    untrained = max((at for at, number in enumerate(since) if not number), default=-1)
    restored = since[untrained + 1 :]
    if not restored or restored[0] < ITERATIONS - 1 or restored != sorted(restored):
        sys.exit(f"expected weights from number {ITERATIONS - 1} on, and newer ones; got {restored}")
    if behind[0] < before[0] * AS_GOOD:
        sys.exit("the second server learned from what untrained weights had decided")


def _listed(numbers: Sequence[float]) -> str:
    return " ".join(f"{number:.0f}" for number in numbers)


if __name__ == "__main__":
    main()
