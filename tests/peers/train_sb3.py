"""PPO of Stable-Baselines3 on ``ospbridge/CartPole-v0`` over OSP, one simulator or a fleet of them.

With ``--hub`` a daemon stands before each simulator, and the learner attaches to the daemons' hubs.

A program, not a test: it needs stable-baselines3, which has a virtual environment of its own. Prints one JSON line
per seed: mean return over 20 evaluation episodes, seconds of learning, steps per second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

import ospbridge
from ospbridge.envs.sb3 import OspVecEnv

assert ospbridge.__version__
ENV_ID = "ospbridge/CartPole-v0"
EPISODES = 20
WAIT = 60.0
OSPBRIDGE = (sys.executable, "-m", "ospbridge")


def ended(process: subprocess.Popen[Any]) -> None:
    """Ended by a signal, since nothing here ends by itself."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def simulators(stack: ExitStack, count: int) -> list[str]:
    """Simulators in processes of their own; their addresses."""
    addresses = []
    for _ in range(count):
        process = subprocess.Popen(
            [*OSPBRIDGE, "sim", "--env", "CartPole-v1", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        stack.callback(ended, process)
        assert process.stdout is not None
        addresses.append(process.stdout.readline().strip())
    return addresses


def hubs(stack: ExitStack, addresses: list[str]) -> list[str]:
    """A daemon before each simulator, its agent ready; the addresses of their hubs."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ospb-"))
    bridges = [f"unix:{folder}/{at}.sock" for at in range(len(addresses))]
    for address, bridge in zip(addresses, bridges, strict=True):
        daemon = subprocess.Popen(
            [
                *(*OSPBRIDGE, "connect", "--simulator", address, "--hub", bridge),
                *("--scenario", "cartpole", "--log-level", "warning"),
            ]
        )
        stack.callback(ended, daemon)
    for bridge in bridges:
        subprocess.run(
            [*OSPBRIDGE, "status", "--hub", bridge, "--wait", str(WAIT)],
            check=True,
            timeout=2 * WAIT,
            stdout=subprocess.DEVNULL,
        )
    return bridges


def evaluate(model: Any, env: OspVecEnv) -> float:
    """Mean return of greedy episodes."""
    returns: list[float] = []
    running = np.zeros(env.num_envs)
    observations = env.reset()
    while len(returns) < EPISODES:
        actions, _ = model.predict(observations, deterministic=True)
        observations, rewards, ended, _ = env.step(actions)
        running += rewards
        returns += running[ended].tolist()
        running[ended] = 0.0
    return float(np.mean(returns[:EPISODES]))


def train(seed: int, steps: int, fleet: int, epochs: int, hub: bool) -> dict[str, Any]:
    with ExitStack() as stack:
        addresses = simulators(stack, fleet)
        if hub:
            env = OspVecEnv.make(ENV_ID, num_envs=fleet, bridge=hubs(stack, addresses))
        else:
            env = OspVecEnv.make(ENV_ID, num_envs=fleet, simulator=addresses)
        stack.callback(env.close)
        model = PPO(
            "MlpPolicy",
            VecMonitor(env),
            seed=seed,
            n_steps=1024 // fleet,
            batch_size=64,
            n_epochs=epochs,
        )
        began = time.perf_counter()
        model.learn(steps)
        seconds = time.perf_counter() - began
        episodes = [episode["r"] for episode in model.ep_info_buffer or ()]
        return {
            "seed": seed,
            "simulators": fleet,
            "hub": hub,
            "steps": steps,
            "seconds": round(seconds, 2),
            "steps_per_second": round(steps / seconds),
            "last_returns": round(float(np.mean(episodes)), 1) if episodes else None,
            "evaluated": round(evaluate(model, env), 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--simulators", type=int, default=1)
    parser.add_argument("--hub", action="store_true", help="through a daemon before each simulator")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this evaluated return")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        figures = train(seed, options.steps, options.simulators, options.epochs, options.hub)
        print(json.dumps(figures), flush=True)
        if figures["evaluated"] < options.at_least:
            sys.exit(f"evaluated at {figures['evaluated']}, expected {options.at_least} or more")


if __name__ == "__main__":
    main()
