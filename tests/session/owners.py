"""Programs that own sessions, to be killed while they step: ``python -m tests.session.owners KIND SIMULATOR [AGENT]``.

SIGUSR1 ends them by ``os._exit``. Each says ``up`` when its first episode has begun, and then steps until it is ended.
KIND is ``env`` (one agent; it says ``made`` before, and awaits a line), ``vector`` (all agents), ``hub`` (all agents of
a daemon, whose hub stands for the simulator) or ``workers``, whose agents each have a process of ``AsyncVectorEnv``: it
says their process ids in place of ``up``.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import ospbridge

assert ospbridge.__version__


def make(simulator: str, agent: str | None) -> gymnasium.Env[object, object]:
    return gymnasium.make(
        "ospbridge/Agent-v0",
        simulator=simulator,
        agent=agent,
        profile="nerd",
        reset_timeout=20,
        step_timeout=20,
    )


def play(env: gymnasium.Env[object, object]) -> None:
    env.reset()
    print("up", flush=True)
    action = np.zeros(env.action_space.shape or (), np.float32)
    while True:
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            print(info["reason"], flush=True)
            env.reset()


def main(kind: str, simulator: str, agent: str | None = None) -> None:
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
    if kind == "env":
        env = make(simulator, agent)
        # Clients in lock-step all have their agents before the first of them resets.
        print("made", flush=True)
        sys.stdin.readline()
        play(env)
    elif kind in {"vector", "hub"}:
        where: dict[str, Any] = {"bridge": simulator}
        if kind == "vector":
            where = {"simulator": simulator, "profile": "nerd"}
        envs = gymnasium.make_vec(
            "ospbridge/Agent-v0", num_envs=3, vectorization_mode="vector_entry_point", wait=30, **where
        )
        envs.reset()
        print("up", flush=True)
        while True:
            envs.step(np.zeros(envs.action_space.shape or (), np.float32))
    else:
        # One worker each: the barrier of one simulator waits for all of them.
        makers = [partial(make, simulator, f"agent{number}") for number in (1, 2, 3)]
        workers = gymnasium.vector.AsyncVectorEnv(makers)
        workers.reset()
        print(*(process.pid for process in workers.processes), flush=True)
        while True:
            workers.step(np.zeros(workers.action_space.shape or (), np.float32))


if __name__ == "__main__":
    main(*sys.argv[1:])
