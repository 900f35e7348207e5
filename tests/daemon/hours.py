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
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ospbridge.session.hub_client import HubClient
from tests.daemon.processes import descriptors, resident, threads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM = (sys.executable, "-m", "ospbridge")
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
READY = 30.0
ROOM = 3 * 2**20
"""Bytes by which the memory of a process may differ between the beginning and the end ..."""
SHARE = 0.04
"""... or this share of it: allocators settle slowly."""
LOOKS = 20
BETWEEN_LOOKS = 0.011
"""Seconds; not a multiple of what the daemon does regularly."""
SPOOL = 4 * 2**20
"""Bytes by which the spool's files may."""


@dataclass(frozen=True)
class Sample:
    at: float
    memory: dict[str, int]
    descriptors: dict[str, int]
    threads: dict[str, int]
    spool: int
    """Bytes of its files."""
    waiting: int
    """Episodes in it."""
    steps: int

    def __str__(self) -> str:
        each = "  ".join(
            f"{name} {size / 2**20:.1f} MiB {self.descriptors[name]} fd {self.threads[name]} threads"
            for name, size in self.memory.items()
        )
        return f"{self.at:7.0f} s  {self.steps} steps  {each}  spool {self.spool / 2**10:.0f} KiB, {self.waiting} wait"


class Bridge:
    """All of it, while its context is open."""

    def __init__(self, directory: Path) -> None:
        self.hub = f"unix:{directory}/hub"
        self._directory = directory
        self._recorded = directory / "recorded"
        self._spool = directory / "spool"
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._stack = ExitStack()
        self._begun = time.monotonic()

    def __enter__(self) -> Self:
        scenario = self._directory / "short.toml"
        scenario.write_text(SCENARIO)
        try:
            simulator = self._start(
                "simulator", *PROGRAM, "sim", "--synthetic", "2,20", "--agents", "2", "--port", "0"
            )
            sink = self._start("sink", *PROGRAM, "sink", "--listen", "127.0.0.1:0")
            options = ("--hub", self.hub, "--scenario", str(scenario), "--record", str(self._recorded))
            upstream = ("--rllink", sink, "--rllink-mode", "observe", "--rllink-unannotated")
            self._start(
                "daemon",
                *(*PROGRAM, "connect", "--simulator", simulator, *options, *upstream),
                *("--rllink-spool", str(self._spool), "--quorum", "2"),
                told=False,
            )
            for agent in ("agent1", "agent2"):
                self._start(agent, sys.executable, "-c", PLAYER, self.hub, agent, told=False)
            give_up = time.monotonic() + READY
            while self._status(READY).steps < 100:
                assert time.monotonic() < give_up
                time.sleep(0.05)
        except BaseException:
            self._stack.close()
            raise
        self._begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, name: str, *command: str, told: bool = True) -> str:
        """Its first line where it tells one."""
        log = self._stack.enter_context((self._directory / f"{name}.log").open("wb"))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._processes[name] = process
        self._stack.callback(process.communicate, timeout=30)
        self._stack.callback(process.kill)
        assert process.stdout is not None
        return process.stdout.readline().strip() if told else ""

    def _status(self, wait: float = 0.0) -> Any:
        client = HubClient.connect(self.hub, wait=wait)
        try:
            return client.status()
        finally:
            client.close()

    def sample(self) -> Sample:
        """How it stands; what was recorded is removed."""
        for name, process in self._processes.items():
            assert process.poll() is None, (
                f"{name} ended: {(self._directory / name).with_suffix('.log').read_text()}"
            )
        for path in self._recorded.glob("*.npz"):
            path.unlink()
        status = self._status()
        (upstream,) = status.upstreams
        pids = {name: process.pid for name, process in self._processes.items()}
        return Sample(
            time.monotonic() - self._begun,
            {name: resident(pid) for name, pid in pids.items()},
            {name: min(_looks(pid)) for name, pid in pids.items()},
            {name: threads(pid) for name, pid in pids.items()},
            sum(path.stat().st_size for path in self._directory.glob("spool*")),
            upstream.spool.entries + upstream.spool.unwritten,
            status.steps,
        )


def _looks(pid: int) -> Iterator[int]:
    """How many descriptors a process has, several times: a file that is being written is none that stays open."""
    for _ in range(LOOKS):
        yield descriptors(pid)
        time.sleep(BETWEEN_LOOKS)


def samples(bridge: Bridge, *, seconds: float, every: float) -> Iterator[Sample]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(every, max(end - time.monotonic(), 0.0)))
        yield bridge.sample()


def grown(found: Sequence[Sample]) -> list[str]:
    """What is more in the last third than in the second; the first warms up."""
    third = len(found) // 3
    early, late = found[third : 2 * third], found[2 * third :]
    told = []
    for name in found[0].memory:
        before, after = (statistics.median(s.memory[name] for s in part) for part in (early, late))
        if after - before > max(ROOM, SHARE * before):
            told.append(f"the memory of {name}: {before / 2**20:.1f} MiB, then {after / 2**20:.1f} MiB")
        for what in ("descriptors", "threads"):
            fewer, more = (min(getattr(s, what)[name] for s in part) for part in (early, late))
            if more > fewer:
                told.append(f"the {what} of {name}: {fewer}, then {more}")
    small, large = (statistics.median(s.spool for s in part) for part in (early, late))
    if large - small > SPOOL:
        told.append(f"the spool: {small / 2**20:.1f} MiB, then {large / 2**20:.1f} MiB")
    if min(later.steps - earlier.steps for earlier, later in itertools.pairwise(found)) <= 0:
        told.append("not the steps: nobody played")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    minutes = parser.parse_args().minutes
    found = []
    with tempfile.TemporaryDirectory(prefix="ospb-") as directory, Bridge(Path(directory)) as bridge:
        for sample in samples(bridge, seconds=60 * minutes, every=min(60.0, 60 * minutes / 9)):
            sys.stdout.write(f"{sample}\n")
            sys.stdout.flush()
            found.append(sample)
    told = grown(found)
    sys.stdout.write("".join(f"grown: {what}\n" for what in told) or "nothing has grown\n")
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
