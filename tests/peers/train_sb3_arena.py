"""PPO of Stable-Baselines3 on two robots that share one arena and one barrier: ``ospbridge/ArenaTwo-v0``.

A program, not a test: it needs stable-baselines3 (and matplotlib for ``--plot``), which have a virtual environment of
their own. Prints one JSON line for each round of learning.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

import ospbridge
from ospbridge.envs.sb3 import OspVecEnv

assert ospbridge.__version__
ROBOTS = 2
LATEST = 20


def learn(rounds: int, steps: int, seed: int) -> list[tuple[int, float]]:
    """Steps taken and mean return of the latest episodes, after each round."""
    simulator = subprocess.Popen(
        [sys.executable, "-m", "ospbridge", "sim", "--arena", "--robots", str(ROBOTS), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    curve = []
    try:
        assert simulator.stdout is not None
        address = simulator.stdout.readline().strip()
        env = OspVecEnv.make("ospbridge/ArenaTwo-v0", num_envs=ROBOTS, simulator=address)
        model = PPO("MlpPolicy", VecMonitor(env), seed=seed, n_steps=1024, batch_size=64, n_epochs=5)
        for _ in range(rounds):
            model.learn(steps, reset_num_timesteps=False)
            returns = [episode["r"] for episode in list(model.ep_info_buffer or ())[-LATEST:]]
            curve.append((int(model.num_timesteps), float(np.mean(returns))))
            print(json.dumps({"steps": curve[-1][0], "mean_return": round(curve[-1][1], 1)}), flush=True)
        env.close()
    finally:
        simulator.terminate()
        simulator.wait(10)
    return curve


def plot(curve: list[tuple[int, float]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.2))
    steps, returns = zip(*curve, strict=True)
    axes.plot(steps, returns, marker="o")
    axes.set_xlabel("steps of the environments")
    axes.set_ylabel(f"mean return, latest {LATEST} episodes")
    axes.set_title("Two robots learn to drive without bumping (PPO)")
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    curve = learn(options.rounds, options.steps, options.seed)
    if options.plot is not None:
        plot(curve, options.plot)
    if curve[-1][1] <= curve[0][1]:
        sys.exit("the returns did not rise")


if __name__ == "__main__":
    main()
