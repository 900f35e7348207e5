"""PPO of RLlib with two EnvRunners, each on a hub of its own: two simulators, two daemons, one learner.

A program, not a test: it needs ``ray[rllib]`` and torch, which have a virtual environment of their own. Prints one
JSON line per iteration and one with the mean return before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from ospbridge.envs.rllib import register, spaces

WAIT = 60.0


def ended(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)


def hub(stack: ExitStack, path: str) -> str:
    """A simulator with a cart, and a daemon between it and whoever attaches; the hub's address."""
    ospbridge = (sys.executable, "-m", "ospbridge")
    simulator = subprocess.Popen(
        [*ospbridge, "sim", "--env", "CartPole-v1", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    stack.callback(ended, simulator)
    assert simulator.stdout is not None
    address = simulator.stdout.readline().strip()
    daemon = subprocess.Popen(
        [
            *(*ospbridge, "connect", "--simulator", address, "--hub", f"unix:{path}"),
            *("--scenario", "cartpole", "--no-spin", "--log-level", "warning"),
        ],
        text=True,
    )
    stack.callback(ended, daemon)
    subprocess.run(
        [*ospbridge, "status", "--hub", f"unix:{path}", "--wait", str(WAIT)],
        check=True,
        timeout=2 * WAIT,
        stdout=subprocess.DEVNULL,
    )
    return f"unix:{path}"


def steps_of(bridge: str) -> int:
    """The steps that a daemon has taken with its simulator."""
    told = subprocess.run(
        [sys.executable, "-m", "ospbridge", "status", "--hub", bridge, "--json"],
        check=True,
        timeout=WAIT,
        capture_output=True,
        text=True,
    )
    return int(json.loads(told.stdout)["steps"])


def train(bridges: list[str], iterations: int, steps: int, seed: int, local_env: bool) -> dict[str, Any]:
    register()
    env_config: dict[str, Any] = {"bridges": bridges, "env_id": "ospbridge/CartPole-v0", "spin": False}
    if local_env:
        env_config |= spaces(env_config)
    config = (
        PPOConfig()
        .environment("ospbridge", env_config=env_config)
        .env_runners(
            num_env_runners=len(bridges),
            sample_timeout_s=10 * WAIT,
            create_env_on_local_worker=local_env,
        )
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=steps,
            minibatch_size=128,
            num_epochs=10,
            lr=3e-4,
            entropy_coeff=0.0,
            vf_clip_param=10_000.0,
        )
        .debugging(seed=seed, log_level="ERROR")
    )
    algorithm = config.build_algo()
    try:
        returns: list[float] = []
        sampled = 0
        began = time.perf_counter()
        for at in range(iterations):
            runners = algorithm.train()["env_runners"]
            returns.append(float(runners["episode_return_mean"]))
            sampled = int(runners["num_env_steps_sampled_lifetime"])
            print(json.dumps({"iteration": at + 1, "return": round(returns[-1], 1)}), flush=True)
        seconds = time.perf_counter() - began
        each = [steps_of(bridge) for bridge in bridges]
    finally:
        algorithm.stop()
    return {
        "ray": ray.__version__,
        "env_runners": len(bridges),
        "iterations": iterations,
        "steps": sampled,
        "steps_of_each_simulator": each,
        "seconds": round(seconds, 1),
        "before": round(returns[0], 1),
        "after": round(returns[-1], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument(
        "--steps", type=int, default=2000, help="of each iteration, of all env runners together"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-least", type=float, default=0.0, help="fail below this mean return at the end")
    parser.add_argument("--local-env", action="store_true", help="give the local worker an environment, too")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ospb-"))
        bridges = [hub(stack, f"{folder}/{name}.sock") for name in ("one", "two")]
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        stack.callback(ray.shutdown)
        # A time limit from outside shall end what was started here, too. Ray has a handler of its own, so after it.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        figures = train(bridges, options.iterations, options.steps, options.seed, options.local_env)
    print(json.dumps(figures), flush=True)
    idle = [steps for steps in figures["steps_of_each_simulator"] if steps < figures["steps"] // 4]
    if idle:
        sys.exit(f"a simulator made only {idle[0]} of {figures['steps']} steps: not both hubs were used")
    if figures["after"] < options.at_least:
        sys.exit(f"the mean return is {figures['after']}, expected {options.at_least} or more")


if __name__ == "__main__":
    main()
