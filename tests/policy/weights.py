"""RLModules for tests: their weights by RLlib's keys, and a forward pass that is as plain as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ospbridge.interface import BoxSpace

SHARED = "encoder.encoder."
SEPARATE = "encoder.actor_encoder."


def module_weights(
    inputs: int = 4,
    hiddens: Sequence[int] = (8, 6),
    outputs: int = 2,
    *,
    encoder: str = SHARED,
    seed: int = 1,
) -> dict[str, NDArray[np.float32]]:
    """The state of an inference-only PPO module with activations between its layers."""
    random = np.random.default_rng(seed)
    widths = [inputs, *hiddens]
    weights: dict[str, NDArray[np.float32]] = {}
    for at, (before, after) in enumerate(pairwise(widths)):
        weights |= dense(random, f"{encoder}net.mlp.{2 * at}.", before, after)
    weights |= dense(random, "pi.net.mlp.0.", widths[-1], outputs)
    weights["pi.log_std_clip_param_const"] = np.array([20.0], np.float32)
    return weights


def dense(random: np.random.Generator, key: str, inputs: int, outputs: int) -> dict[str, NDArray[np.float32]]:
    return {
        f"{key}weight": random.normal(size=(outputs, inputs)).astype(np.float32),
        f"{key}bias": random.normal(size=outputs).astype(np.float32),
    }


def plainly(
    weights: dict[str, NDArray[np.float32]],
    observations: NDArray[np.float32],
    function: Callable[[Any], Any] = np.tanh,
) -> NDArray[np.float64]:
    """What those weights make of float32[B, inputs], in doubles."""
    x = observations.astype(np.float64)
    keys = [key.removesuffix("weight") for key in weights if key.endswith("weight")]
    for key in keys:
        x = x @ weights[key + "weight"].T.astype(np.float64) + weights[key + "bias"]
        if not key.startswith("pi."):
            x = function(x)
    return x


def box(n: int, low: float = -np.inf, high: float = np.inf) -> BoxSpace:
    return BoxSpace(np.full(n, low, np.float32), np.full(n, high, np.float32))
