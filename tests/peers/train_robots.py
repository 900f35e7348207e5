"""PPO of Stable-Baselines3 on the stand-ins for the A-Series and the Volksbot, or on two robots of one arena.

A program, not a test: it needs stable-baselines3 (and matplotlib for ``--plot``), which have a virtual environment of
their own. For each task it prints one JSON line: mean returns of the policy before and after learning, and of three
that learn nothing: actions of zeros, the scenario's neutral inputs, and random actions. It fails if PPO does not
improve, or if one of these three earns more than a third of what PPO ends with.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from ospbridge.envs.sb3 import OspVecEnv
from ospbridge.simulator.hosting import world_of
from ospbridge.task.loading import load
from ospbridge.task.making import make_task
from tests.peers.processes import Place, running
from tests.peers.train_sb3 import mean_return

EPISODES = 10
LATEST = 20
MOST = 1 / 3
"""Share of the learned return that a policy which learns nothing may earn."""
ROUNDS = 10
IDLE = ("zero", "neutral", "random")
Curve = list[tuple[int, float]]
"""Actions taken, and the mean return of the latest episodes."""


@dataclass(frozen=True)
class Training:
    """How long PPO learns a task, in actions, and what of its settings is not the library's default."""

    env_id: str
    steps: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def scenario(self) -> str:
        return str(gymnasium.spec(self.env_id).kwargs["scenario"])


TASKS = (
    Training("ospbridge/ASeriesStand-v0", 80_000, {"n_steps": 1024, "policy_kwargs": {"log_std_init": -0.7}}),
    Training("ospbridge/ASeriesWalk-v0", 30_000, {"n_steps": 512, "gamma": 0.95, "ent_coef": 0.01}),
    Training("ospbridge/Volksbot-v0", 60_000, {"n_steps": 1024}),
)


def neutral_action(scenario: str) -> Any:
    """The action that gives the scenario's neutral inputs."""
    rules = load(scenario)
    agent = world_of(rules).agents[0].interface
    task: Any = make_task(rules, agent, bounded=False)
    choices = range(len(rules.agent[0].action.choices))
    if choices:
        return np.int64(next(at for at in choices if np.array_equal(task.inputs(at), task.neutral)))
    neutral = dict(zip((value.name for value in agent.inputs), task.neutral, strict=True))
    return np.array([neutral[name] for name in task.action_names], np.float32)


def learning_curve(model: PPO, steps: int) -> Curve:
    """It learns for so many actions."""
    curve: Curve = []
    for _ in range(ROUNDS):
        model.learn(steps // ROUNDS, reset_num_timesteps=False)
        latest = [episode["r"] for episode in list(model.ep_info_buffer or ())[-LATEST:]]
        curve.append((int(model.num_timesteps), float(np.mean(latest))))
        print(f"{curve[-1][0]} actions, {curve[-1][1]:.1f}", file=sys.stderr, flush=True)
    return curve


def learned(place: Place, training: Training, profile: str, seed: int) -> tuple[dict[str, Any], Curve]:
    """Figures of one task."""
    address = place.simulator(training.scenario, "--profile", profile)
    with closing(OspVecEnv.make(training.env_id, num_envs=1, simulator=address)) as plain:
        plain.action_space.seed(seed)
        neutral = np.array([neutral_action(training.scenario)])
        figures: dict[str, Any] = {
            "task": training.env_id,
            "zero": mean_return(plain, lambda _: np.zeros_like(neutral), EPISODES),
            "neutral": mean_return(plain, lambda _: neutral, EPISODES),
            "random": mean_return(plain, lambda _: np.array([plain.action_space.sample()]), EPISODES),
        }
        env = VecNormalize(VecMonitor(plain), gamma=training.settings.get("gamma", 0.99))
        model = PPO("MlpPolicy", env, seed=seed, **training.settings)

        def greedy(observations: Any) -> Any:
            actions, _ = model.predict(env.normalize_obs(observations), deterministic=True)
            return actions

        figures["before"] = mean_return(plain, greedy, EPISODES)
        began = time.perf_counter()
        curve = learning_curve(model, training.steps)
        figures["seconds"] = time.perf_counter() - began
        figures["actions"] = int(model.num_timesteps)
        figures["after"] = mean_return(plain, greedy, EPISODES)
    return figures, curve


def arena(place: Place, seed: int) -> tuple[dict[str, Any], Curve]:
    """Two robots that share a world and its barrier; before and after are the first and the last of the curve."""
    address = place.simulator("--arena", "--robots", 2)
    with closing(OspVecEnv.make("ospbridge/ArenaTwo-v0", num_envs=2, simulator=address)) as env:
        model = PPO("MlpPolicy", VecMonitor(env), seed=seed, n_steps=1024, batch_size=64, n_epochs=5)
        curve = learning_curve(model, 100_000)
    return {"task": "ospbridge/ArenaTwo-v0", "before": curve[0][1], "after": curve[-1][1]}, curve


def failures(figures: dict[str, Any]) -> list[str]:
    """What the figures of a task do not keep to."""
    found = [] if figures["after"] > figures["before"] else ["PPO did not improve"]
    found += [
        f"{kind} actions earn more than a third of what PPO ends with"
        for kind in IDLE
        if figures.get(kind, -np.inf) > MOST * figures["after"]
    ]
    return [f"{figures['task']}: {what}" for what in found]


def plot(results: list[tuple[dict[str, Any], Curve]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "ospbridge"
    from matplotlib import pyplot as plt

    width = max(6.0, 3.6 * len(results))
    figure, (row,) = plt.subplots(1, len(results), figsize=(width, 3.2), squeeze=False)
    for axes, (figures, curve) in zip(row, results, strict=True):
        axes.plot(*zip(*curve, strict=True), marker="o", label="PPO")
        for kind, style in zip(IDLE, (":", "--", "-."), strict=True):
            if kind in figures:
                axes.axhline(figures[kind], linestyle=style, color="gray", label=f"{kind} actions")
        axes.set_title(figures["task"].removeprefix("ospbridge/"))
        axes.set_xlabel("actions")
        axes.grid(alpha=0.3)
    row[0].set_ylabel(f"mean return, latest {LATEST} episodes")
    row[0].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arena", action="store_true", help="train two robots of one arena instead")
    parser.add_argument("--task", default="", help="only tasks whose id contains this")
    parser.add_argument("--profile", default="nerd", help="the kind of server that the simulator is")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path, metavar="PICTURE.svg")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for training in [None] if options.arena else [task for task in TASKS if options.task in task.env_id]:
        with running() as place:
            if training is None:
                results.append(arena(place, options.seed))
            else:
                results.append(learned(place, training, options.profile, options.seed))
        figures = results[-1][0]
        print(
            json.dumps({k: round(v, 1) if isinstance(v, float) else v for k, v in figures.items()}),
            flush=True,
        )
    if options.plot is not None:
        plot(results, options.plot)
    if wrong := [each for figures, _ in results for each in failures(figures)]:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
