"""A real RLlib that learns by PPO from whatever connects to it: the server side of RLlink, in both its generations.

A program, not a test: ``python -m tests.peers.serve_rllib``, in a virtual environment of its own, with Ray 2.60.0
(msgpack, weights; needs msgpack-numpy) or Ray 2.47.1 (JSON, ONNX; needs onnx, onnxruntime and onnxscript). Prints one
JSON line per training iteration, until it is ended.
It listens on loopback only, at --port plus the runner's index: --port itself without runners, the next ones with them.
With --told, each runner writes down what reaches it: whether its own weights decided each batch, and what it sampled.

Ray 2.47.1 is mended here in two places, neither of which a client could see to: its ONNX export names a call that newer
torch refuses, and it takes an action that came as a JSON list for a tuple of scalars.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import gymnasium
import numpy as np
import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from tests.peers.rllib_runner import Runner, Telling


def config(arguments: argparse.Namespace) -> PPOConfig:
    """PPO of a cart with a pole, as RLlib's own example of an external simulator sets it, with the sizes asked for."""
    actions: gymnasium.Space[Any] = (
        gymnasium.spaces.Box(-1.0, 1.0, (arguments.continuous,), np.float32)
        if arguments.continuous
        else gymnasium.spaces.Discrete(2)
    )
    return (
        PPOConfig()
        .environment(
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            action_space=actions,
            env_config={
                "port": arguments.port,
                "told": None if arguments.told is None else str(arguments.told.resolve()),
                "hesitate": arguments.hesitate,
            },
        )
        .env_runners(
            env_runner_cls=Runner if arguments.told is None else Telling,
            num_env_runners=arguments.runners,
            # Ray 2.47 asks the local one for the spaces. It listens at the base port then, and samples nothing.
            create_local_env_runner=not arguments.runners or ray.__version__.startswith(("2.47.", "2.48.")),
            # On a busy machine a runner that does not listen yet would be taken for dead.
            validate_env_runners_after_construction=False,
            # A simulator may be slow: no sample is ever given up.
            sample_timeout_s=1e6,
        )
        .training(
            num_epochs=arguments.epochs,
            vf_loss_coeff=0.01,
            train_batch_size_per_learner=arguments.steps,
            minibatch_size=arguments.minibatch,
            lr=arguments.lr,
        )
        .rl_module(
            model_config=DefaultModelConfig(
                vf_share_layers=True, fcnet_hiddens=[64, 64], fcnet_activation="tanh"
            )
        )
        .reporting(metrics_num_episodes_for_smoothing=20, min_time_s_per_iteration=0)
        .debugging(seed=arguments.seed)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--runners", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1000, help="per iteration")
    parser.add_argument(
        "--continuous", type=int, default=0, help="numbers of an action; 0: one of two choices"
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--minibatch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--told", type=Path, metavar="FILE", help="for what comes to runners and is sampled")
    parser.add_argument("--hesitate", type=float, default=0.0, help="seconds, see the code")
    arguments = parser.parse_args()

    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    algorithm = config(arguments).build_algo()
    print(json.dumps({"ready": True, "ray": ray.__version__}), flush=True)
    began = time.monotonic()
    sampled = 0
    try:
        for iteration in itertools.count(1):
            found = algorithm.train()
            runners = found["env_runners"]
            sampled += int(runners.get("num_env_steps_sampled", 0))
            learned = found.get("learners", {}).get("default_policy", {})
            line = {
                "iteration": iteration,
                "steps": sampled,
                "return_mean": runners.get("episode_return_mean"),
                "weights_seq_no": int(learned.get("weights_seq_no", 0)),
                "seconds": round(time.monotonic() - began, 2),
            }
            print(json.dumps(line, default=float), flush=True)
    finally:
        algorithm.stop()
        ray.shutdown()


if __name__ == "__main__":
    main()
