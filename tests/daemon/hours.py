"""A simulator, a daemon that records and relays, two environments and a sink, for as long as wanted: nothing may grow.

`python -m tests.daemon.hours --minutes 60` prints a line a minute, and ends with 1 where something has grown.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from tests.daemon.running import PROGRAM, Daemon, descriptors, resident, threads, until

PLAYER = """
import sys, time
import gymnasium, ospbridge
env = gymnasium.make("ospbridge/Agent-v0", bridge=sys.argv[1], agent=sys.argv[2], wait=30.0)
seed = 1
env.reset(seed=seed)
while True:
    *_, terminated, truncated, info = env.step(env.action_space.sample())
    if truncated:
        assert not info["reason"] or "max_steps" in info["reason"], info["reason"]
    if terminated or truncated:
        seed += 1
        env.reset(seed=seed)
    time.sleep(0.001)
"""
SCENARIO = 'name = "short"\n[[agent]]\n[agent.episode]\nmax_steps = 100\n'
ROOM = 3 * 2**20
"""Bytes by which the memory of a process may differ between the beginning and the end ..."""
SHARE = 0.04
"""... or this share of it: allocators settle slowly."""
LOOKS = 20
BETWEEN_LOOKS = 0.011
"""Seconds; not a multiple of what the daemon does regularly."""
SPOOL = 4 * 2**20
"""Bytes by which the spool's files may."""

Sample = dict[str, float]
"""By what it is of: "memory of daemon", "spool", "steps" and so on."""


class Bridge:
    """All of it, while its context is open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pids: dict[str, int] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        hub, scenario = f"unix:{self._directory}/hub", self._directory / "short.toml"
        scenario.write_text(SCENARIO)
        with self._stack:
            simulator = self._start(
                "simulator", *PROGRAM, "sim", "--synthetic", "2,20", "--agents", "2", "--port", "0"
            )
            sink = self._start("sink", *PROGRAM, "sink", "--listen", "127.0.0.1:0")
            options = (
                "--hub",
                hub,
                "--scenario",
                str(scenario),
                "--record",
                str(self._directory / "recorded"),
            )
            upstream = ("--rllink", sink, "--rllink-mode", "observe", "--rllink-unannotated")
            spool = ("--rllink-spool", str(self._directory / "spool"), "--quorum", "2")
            self._daemon = self._stack.enter_context(
                Daemon(simulator, *options, *upstream, *spool, directory=self._directory, hub=hub, level=())
            )
            self._pids["daemon"] = self._daemon.process.pid
            for agent in ("agent1", "agent2"):
                self._start(agent, sys.executable, "-c", PLAYER, hub, agent, told=False)
            until(lambda: self._daemon.status().steps >= 100)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, name: str, *command: str, told: bool = True) -> str:
        """Its first line where it tells one."""
        log = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._pids[name] = process.pid
        self._stack.callback(process.communicate, timeout=30)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        return process.stdout.readline().strip() if told else ""

    def sample(self) -> Sample:
        """How it stands; what was recorded is removed."""
        for path in (self._directory / "recorded").glob("*.npz"):
            path.unlink()
        found: Sample = {"steps": self._daemon.status().steps}
        for name, pid in self._pids.items():
            found[f"memory of {name}"] = resident(pid)
            found[f"descriptors of {name}"] = min(_looks(pid))
            found[f"threads of {name}"] = threads(pid)
        found["spool"] = sum(path.stat().st_size for path in self._directory.glob("spool*"))
        return found


def _looks(pid: int) -> Iterator[int]:
    """How many descriptors a process has, several times: a file that is being written is none that stays open."""
    for _ in range(LOOKS):
        yield descriptors(pid)
        time.sleep(BETWEEN_LOOKS)


def grown(found: Sequence[Sample]) -> list[str]:
    """What is more in the last third than in the second; the first warms up."""
    third = len(found) // 3
    told = []
    for what in found[0]:
        early, late = (
            [sample[what] for sample in part] for part in (found[third : 2 * third], found[2 * third :])
        )
        before, after, room = min(early), min(late), 0.0
        if what.startswith("memory") or what == "spool":
            before, after = statistics.median(early), statistics.median(late)
            room = SPOOL if what == "spool" else max(ROOM, SHARE * before)
        if what != "steps" and after - before > room:
            told.append(f"{what}: {before:.0f}, then {after:.0f}")
    if min(later["steps"] - earlier["steps"] for earlier, later in itertools.pairwise(found)) <= 0:
        told.append("not the steps: nobody played")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    seconds = 60 * parser.parse_args().minutes
    found: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory, Bridge(Path(directory)) as bridge:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(60.0, seconds / 9, left))
            found.append(bridge.sample())
            sys.stdout.write("  ".join(f"{what} {number:.0f}" for what, number in found[-1].items()) + "\n")
            sys.stdout.flush()
    told = grown(found)
    sys.stdout.write("".join(f"grown: {what}\n" for what in told) or "nothing has grown\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
