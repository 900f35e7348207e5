"""PPO of RLlib with two EnvRunners, each on a hub of its own: two simulators, two daemons, one learner.

A program, not a test: it needs ``ray[rllib]`` and torch, which have a virtual environment of their own. Prints one
JSON line per iteration and one with the mean return before and after.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
from ray.rllib.algorithms.ppo import PPOConfig

from ospbridge.envs.rllib import register, spaces
from ospbridge.session.hub_client import HubClient
from tests.peers.processes import running


def steps_of(bridge: str) -> int:
    """The steps that a daemon has taken with its simulator."""
    client = HubClient.connect(bridge)
    steps = client.status().steps
    client.close()
    return int(steps)


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
            sample_timeout_s=600.0,
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
        return {
            "ray": ray.__version__,
            "env_runners": len(bridges),
            "iterations": iterations,
            "steps": sampled,
            "seconds": round(time.perf_counter() - began, 1),
            "steps_of_each_simulator": [steps_of(bridge) for bridge in bridges],
            "before": round(returns[0], 1),
            "after": round(returns[-1], 1),
        }
    finally:
        algorithm.stop()


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
    # Ray has a handler of SIGTERM of its own, so it is started before there is ours.
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with running() as place:
        bridges = [place.hub(place.simulator(), "--no-spin") for _ in range(2)]
        figures = train(bridges, options.iterations, options.steps, options.seed, options.local_env)
        ray.shutdown()
    print(json.dumps(figures), flush=True)
    idle = [steps for steps in figures["steps_of_each_simulator"] if steps < figures["steps"] // 4]
    if idle:
        sys.exit(f"a simulator made only {idle[0]} of {figures['steps']} steps: not both hubs were used")
    if figures["after"] < options.at_least:
        sys.exit(f"the mean return is {figures['after']}, expected {options.at_least} or more")


if __name__ == "__main__":
    main()
