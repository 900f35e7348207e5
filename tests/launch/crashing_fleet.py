"""Kills the simulators of a vector environment one after the other, and sees what came of it.

    python -m tests.launch.crashing_fleet --rounds 50 --simulators 8

Each kill must truncate its own environment with the reason, and the next reset must start that simulator anew; no step
may run twice (by the simulators' ledgers); none may be left behind ``close``, nor ten seconds behind a kill -9 of the
owner.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil

import ospbridge

assert ospbridge.__version__
ENV = "ospbridge/Pendulum-v0"
LEFT_WITHIN = 10.0


def command(ledgers: Path) -> list[str]:
    """Each process writes a ledger of its own, so that one that follows a crash overwrites none."""
    own = [sys.executable, "-m", "ospbridge", "sim", "pendulum", "--quiet", "--port", "{port}", "--ledger"]
    return ["sh", "-c", f"exec {shlex.join(own)} {shlex.quote(str(ledgers))}/{{port}}-$$.jsonl"]


def fleet(simulators: int, ledgers: Path) -> Any:
    """After its first reset."""
    envs = gymnasium.make_vec(
        ENV, num_envs=simulators, launch=command(ledgers), vectorization_mode="vector_entry_point"
    )
    envs.reset(seed=1)
    return envs


def running(ledgers: Path) -> list[psutil.Process]:
    """Simulators of this run, whoever owns them."""
    return [
        process
        for process in psutil.process_iter(["cmdline", "status"])
        if {"sim", "pendulum"} <= set(process.info["cmdline"] or ())
        and str(ledgers) in " ".join(process.info["cmdline"])
        and process.info["status"] != psutil.STATUS_ZOMBIE
    ]


def crash_each(simulators: int, ledgers: Path, drawn: random.Random) -> tuple[int, int]:
    """Steps whose outcome was told, and those that a crash cut."""
    envs = fleet(simulators, ledgers)
    told = cut = 0
    values = iter(np.linspace(-0.99, -0.01, 100_000, dtype=np.float32))
    resets = np.zeros(simulators, np.bool_)

    def step() -> tuple[Any, Any]:
        nonlocal told, cut, resets
        actions = np.array([[next(values)] for _ in range(simulators)], np.float32)
        *_, terminations, truncations, infos = envs.step(actions)
        # Those whose episode ended before took no action, but began anew.
        stepped = ~resets
        crashed = np.array([bool(reason) for reason in infos["reason"]])
        told += int((stepped & ~crashed).sum())
        cut += int((stepped & crashed).sum())
        resets = terminations | truncations
        return truncations, infos

    for number, group in enumerate(envs._fleet.groups):
        for _ in range(drawn.randrange(1, 5)):
            step()
        os.kill(group.backend.shared.launched.pid, signal.SIGKILL)
        truncations, infos = step()
        assert np.flatnonzero(truncations).tolist() == [number], infos
        assert str(infos["reason"][number]).endswith("it was ended by SIGKILL"), infos
        step()
        step()
    assert len(running(ledgers)) == simulators
    envs.close()
    assert running(ledgers) == []
    return told, cut


def ran(ledgers: Path) -> int:
    """Steps with an action, none of which may be there twice."""
    count = 0
    for path in ledgers.glob("*.jsonl"):
        inputs = []
        for line in path.read_text().splitlines():
            # The last line of one that was killed may be cut short.
            record: dict[str, Any] = json.loads(line) if line.endswith("}") else {}
            if record.get("kind") == "step":
                ((value,),) = (agent["inputs"] for agent in record["agents"].values())
                if value != 0.0:
                    inputs.append(value)
        assert len(set(inputs)) == len(inputs), f"{path}: a step ran twice"
        count += len(inputs)
    return count


OWNER = """
import sys, pathlib, numpy as np
from tests.launch.crashing_fleet import fleet
count = int(sys.argv[1])
envs = fleet(count, pathlib.Path(sys.argv[2]))
print("up", flush=True)
while True:
    envs.step(np.zeros((count, 1), np.float32))
"""


def kill_owner(simulators: int, ledgers: Path) -> float:
    """Seconds until all simulators of an owner that was killed are gone."""
    program = [sys.executable, "-c", OWNER, str(simulators), str(ledgers)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        assert len(running(ledgers)) == simulators
        owner.kill()
    begun = time.monotonic()
    while running(ledgers):
        assert time.monotonic() - begun < LEFT_WITHIN, "simulators were left"
        time.sleep(0.01)
    return time.monotonic() - begun


def one_round(simulators: int, seed: float) -> tuple[int, int, int, float]:
    """Steps that were told and that were cut, steps that ran, and how long simulators outlived their owner."""
    with tempfile.TemporaryDirectory() as directory:
        ledgers = Path(directory)
        told, cut = crash_each(simulators, ledgers, random.Random(seed))
        steps = ran(ledgers)
        assert told <= steps <= told + cut, (told, steps, cut)
        return told, cut, steps, kill_owner(simulators, ledgers)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--simulators", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rounds = []
    for number in range(options.rounds):
        rounds.append(one_round(options.simulators, options.seed + number / 1e6))
        if (number + 1) % 10 == 0:
            print(f"{number + 1} rounds", flush=True)
    told, cut, steps, _ = (sum(column) for column in zip(*rounds, strict=True))
    longest = max(seconds for *_, seconds in rounds)
    print(
        f"{options.rounds} rounds of {options.simulators} simulators: {options.rounds * options.simulators} kills, "
        f"{told} steps told and {cut} cut, {steps} ran, none twice; none left, at most {longest:.2f} s behind its owner"
    )


if __name__ == "__main__":
    main()
