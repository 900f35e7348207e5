"""Policies in numpy beside the RLModules of a real RLlib: the same numbers from the same weights?

A program, not a test: it needs Ray 2.60.0 and torch, which have a virtual environment of their own, with ospbridge in
it. Prints one JSON line per configuration with the largest absolute differences, and fails where one is too large.
``--hiddens 8 6 --width 5 --rows 6 --write tests/policy/references.npz`` made what those
of the package compare with.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import gymnasium
import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.spaces.space_utils import clip_action, unsquash_action

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.policy.acting import Policy
from ospbridge.policy.distributions import ActionSpace, MultiDiscreteSpace

LIMIT = 1e-5
LOW, HIGH = np.array([-2.0, 0.5, -1.0], np.float32), np.array([-1.0, 30.0, 1.0], np.float32)
SPACES: dict[str, tuple[gymnasium.Space[Any], ActionSpace]] = {
    "discrete": (gymnasium.spaces.Discrete(3), DiscreteSpace(3)),
    "box": (gymnasium.spaces.Box(LOW, HIGH), BoxSpace(LOW, HIGH)),
    "multidiscrete": (gymnasium.spaces.MultiDiscrete([3, 2, 4]), MultiDiscreteSpace((3, 2, 4))),
}


@dataclass(frozen=True)
class Configuration:
    name: str
    space: str
    model: dict[str, Any] = field(default_factory=dict)

    @property
    def activations(self) -> dict[str, Any]:
        return {
            "activation": self.model.get("fcnet_activation", "tanh"),
            "head_activation": self.model.get("head_fcnet_activation", "relu"),
        }


CONFIGURATIONS = [
    *(
        Configuration(
            f"{activation} {'shared' if shared else 'separate'} {space}",
            space,
            {"fcnet_activation": activation, "vf_share_layers": shared},
        )
        for activation, shared, space in product(
            ("tanh", "relu", "silu", "linear"), (True, False), ("discrete", "box")
        )
    ),
    Configuration("multidiscrete", "multidiscrete"),
    Configuration("elu", "box", {"fcnet_activation": "elu"}),
    Configuration("gelu", "box", {"fcnet_activation": "GELU"}),
    Configuration("head", "box", {"head_fcnet_hiddens": [7, 5], "head_fcnet_activation": "silu"}),
    Configuration("linear head", "discrete", {"head_fcnet_hiddens": [7], "head_fcnet_activation": "linear"}),
    Configuration(
        "layer norm",
        "box",
        {"fcnet_use_layernorm": True, "head_fcnet_hiddens": [7], "head_fcnet_use_layernorm": True},
    ),
    Configuration("linear layer norm", "box", {"fcnet_activation": "linear", "fcnet_use_layernorm": True}),
    Configuration("one layer", "box", {"fcnet_hiddens": [6]}),
    Configuration("free log-std", "box", {"free_log_std": True, "log_std_clip_param": 0.3}),
    Configuration("tight log-std", "box", {"log_std_clip_param": 0.1}),
    Configuration("unlimited log-std", "box", {"log_std_clip_param": float("inf")}),
]


def module_of(
    observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], model: dict[str, Any]
) -> Any:
    """The RLModule that RLlib's server has of this configuration."""
    config = PPOConfig().rl_module(model_config=DefaultModelConfig(**model))
    config = config.environment(observation_space=observations, action_space=actions)
    spec = config.get_rl_module_spec(
        spaces={"__env__": (observations, actions), "default_policy": (observations, actions)},
        inference_only=True,
    )
    return spec.build()


def stir(module: Any, random: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Give a module weights that are larger than those it starts with, and return its state."""
    state: dict[str, NDArray[np.float32]] = {}
    for key, array in module.get_state().items():
        if key.endswith("clip_param_const"):
            state[key] = np.asarray(array)
        else:
            scale = 1.5 / np.sqrt(array.shape[-1]) if array.ndim == 2 else 0.5
            centre = 1.0 if array.ndim == 1 and key.endswith("weight") else 0.0
            state[key] = random.normal(centre, scale, array.shape).astype(np.float32)
    module.set_state(state)
    assert all(np.array_equal(array, state[key]) for key, array in module.get_state().items())
    return state


def apart(ours: Any, theirs: Any) -> float:
    """The largest difference; infinite where something is not a number, or shapes differ."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return float("inf")
    found = float(np.abs(ours - theirs).max())
    return float("inf") if np.isnan(found) else found


def logp_of(module: Any, dist_inputs: NDArray[np.float32], actions: NDArray[Any]) -> NDArray[np.float32]:
    """What torch says of actions. Of our inputs: small deviations would magnify the differences of both networks."""
    distribution = module.get_inference_action_dist_cls().from_logits(torch.from_numpy(dist_inputs))
    logp: NDArray[np.float32] = distribution.logp(torch.from_numpy(actions)).numpy()
    return logp


def compare(
    configuration: Configuration, hiddens: list[int], width: int, rows: int, seed: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """The differences, and RLlib's numbers."""
    random = np.random.default_rng(seed)
    actions, space = SPACES[configuration.space]
    bounds = np.full(width, np.inf, np.float32)
    module = module_of(
        gymnasium.spaces.Box(-bounds, bounds), actions, {"fcnet_hiddens": hiddens, **configuration.model}
    )
    state = stir(module, random)
    policy_of = partial(
        Policy, state, BoxSpace(-bounds, bounds), space, **configuration.activations, seed=seed
    )
    policy = policy_of()
    observations = random.normal(size=(rows, width)).astype(np.float32)
    with torch.no_grad():
        outputs = module.forward_inference({"obs": torch.from_numpy(observations)})["action_dist_inputs"]
        batch, singly = policy.act(observations), [policy.act(row) for row in observations]
        row_inputs = np.stack([row.dist_inputs for row in singly])
        logp = logp_of(module, batch.dist_inputs, batch.action)
        row_logp = logp_of(module, row_inputs, np.stack([row.action for row in singly]))
        distribution = module.get_inference_action_dist_cls().from_logits(outputs)
        greedy = distribution.to_deterministic().sample().numpy()
    policy.explore = False
    differences = {
        "dist_inputs": apart(batch.dist_inputs, outputs),
        "dist_inputs_of_rows": apart(row_inputs, outputs),
        "logp": apart(batch.logp, logp),
        "logp_of_rows": apart([row.logp for row in singly], row_logp),
        "greedy": apart(policy.act(observations).action, greedy),
        "greedy_of_rows": apart(np.stack([policy.act(row).action for row in observations]), greedy),
    }
    reference = {
        "observations": observations,
        "dist_inputs": outputs.numpy(),
        "actions": batch.action,
        "logp": logp_of(module, outputs.numpy(), batch.action),
        "greedy": greedy,
        **{f"weights/{key}": array for key, array in state.items()},
    }
    if isinstance(space, BoxSpace):
        clipping = policy_of(normalize_actions=False, clip_actions=True)
        reference["unsquashed"] = np.stack([unsquash_action(each, actions) for each in batch.action])
        reference["clipped"] = np.stack([clip_action(each, actions) for each in batch.action])
        differences["unsquashed"] = apart(batch.sent_action, reference["unsquashed"])
        differences["clipped"] = apart(clipping.act(observations).sent_action, reference["clipped"])
    return differences, reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hiddens", type=int, nargs="+", default=[64, 64])
    parser.add_argument("--width", type=int, default=16, help="numbers of an observation")
    parser.add_argument("--rows", type=int, default=20, help="observations")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, metavar="FILE", help="an npz file for RLlib's numbers")
    arguments = parser.parse_args()
    worst = 0.0
    references: dict[str, Any] = {}
    for at, configuration in enumerate(CONFIGURATIONS):
        found, reference = compare(
            configuration, arguments.hiddens, arguments.width, arguments.rows, 1000 * arguments.seed + at
        )
        print(json.dumps({"configuration": configuration.name, **found}), flush=True)
        worst = max(worst, *found.values())
        about = {
            "space": configuration.space,
            **configuration.activations,
            "shapes": {key: array.shape for key, array in reference.items()},
        }
        # Few members: what a zip archive says of each is longer than most of these arrays.
        numbers = np.concatenate([np.ravel(array).astype(np.float32) for array in reference.values()])
        references[configuration.name] = numbers
        references[f"{configuration.name}: about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    print(json.dumps({"ray": ray.__version__, "configurations": len(CONFIGURATIONS), "worst": worst}))
    if arguments.write is not None:
        np.savez_compressed(arguments.write, **references)
    if not worst <= LIMIT:
        sys.exit(f"a difference of {worst}, expected at most {LIMIT}")


if __name__ == "__main__":
    main()
