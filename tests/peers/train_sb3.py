"""PPO of Stable-Baselines3 on ``ospbridge/CartPole-v0`` over OSP, one simulator or a fleet of them.

With ``--hub`` a daemon stands before each simulator, and the learner attaches to the daemons' hubs.

A program, not a test: it needs stable-baselines3, which has a virtual environment of its own. Prints one JSON line
per seed: mean return over 20 evaluation episodes, seconds of learning, steps per second.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from ospbridge.envs.sb3 import OspVecEnv
from tests.peers.processes import Place, running

EPISODES = 20


def made(place: Place, fleet: int, hub: bool) -> OspVecEnv:
    addresses = [place.simulator() for _ in range(fleet)]
    where: Any = {"bridge": [place.hub(each) for each in addresses]} if hub else {"simulator": addresses}
    return OspVecEnv.make("ospbridge/CartPole-v0", num_envs=fleet, **where)


def mean_return(env: OspVecEnv, act: Callable[[Any], Any], episodes: int) -> float:
    """Of whole episodes, from the same seeds each time."""
    env.seed(1000)
    observations = env.reset()
    returns: list[float] = []
    running = np.zeros(env.num_envs)
    while len(returns) < episodes:
        observations, rewards, ended, _ = env.step(act(observations))
        running += rewards
        returns += running[ended].tolist()
        running[ended] = 0.0
    return float(np.mean(returns[:episodes]))


def train(seed: int, steps: int, fleet: int, hub: bool) -> dict[str, Any]:
    with running() as place, closing(made(place, fleet, hub)) as env:
        model = PPO("MlpPolicy", VecMonitor(env), seed=seed, n_steps=1024 // fleet, batch_size=64)
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
            "evaluated": round(
                mean_return(env, lambda seen: model.predict(seen, deterministic=True)[0], EPISODES), 1
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--simulators", type=int, default=1)
    parser.add_argument("--hub", action="store_true", help="through a daemon before each simulator")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this evaluated return")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for seed in options.seeds:
        figures = train(seed, options.steps, options.simulators, options.hub)
        print(json.dumps(figures), flush=True)
        if figures["evaluated"] < options.at_least:
            sys.exit(f"evaluated at {figures['evaluated']}, expected {options.at_least} or more")


if __name__ == "__main__":
    main()
