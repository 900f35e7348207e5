"""Whether memory grows while an environment steps: `python -m tests.bench.memory --steps 1000000 --room 2`.

A direct environment and one at a hub, one behind the other, with a reset every thousand steps. What is resident behind
a tenth of the steps, when all that is needed has come, is compared with that behind all of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import psutil

from ospbridge.bench.stage import Stage

EPISODE = 1000


def grown(where: dict[str, Any], steps: int, pids: Sequence[int]) -> list[float]:
    """Megabytes by which the memory of each process has grown."""
    processes = [psutil.Process(pid) for pid in pids]
    with closing(gymnasium.make("ospbridge:ospbridge/Agent-v0", wait=30.0, **where).unwrapped) as env:
        action = np.zeros(env.action_space.shape or (), np.float32)
        early: list[int] = []
        for number in range(steps):
            if number % EPISODE == 0:
                env.reset(seed=1)
            if number == steps // 10:
                early = [process.memory_info().rss for process in processes]
            env.step(action)
        now = [process.memory_info().rss for process in processes]
        return [(after - before) / 1e6 for after, before in zip(now, early, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of each environment")
    parser.add_argument("--room", type=float, default=float("inf"), metavar="MB", help="fail above this")
    given = parser.parse_args()
    worst = 0.0
    with Stage(inputs=8, outputs=16) as stage:
        for name, where, processes in (
            ("direct", {"simulator": stage.responder}, [os.getpid()]),
            ("hub", {"bridge": stage.hub}, [os.getpid(), stage.daemon.process.pid]),
        ):
            found = grown(where, given.steps, processes)
            sys.stdout.write(f"{name}: client and daemon grew by {[round(each, 2) for each in found]} MB\n")
            worst = max(worst, *found)
    if worst > given.room:
        sys.exit(f"memory grew by {worst:.2f} MB, by more than {given.room:g}")


if __name__ == "__main__":
    main()
