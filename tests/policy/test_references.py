"""The numbers of a real RLlib, as ``tests/peers/compare_policy.py --write`` has stored them (Ray 2.60.0, torch)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.policy.acting import Policy
from ospbridge.policy.distributions import ActionSpace, MultiDiscreteSpace
from tests.policy.weights import box

FILE = Path(__file__).parent / "references.npz"
LIMIT = 1e-5
SPACES: dict[str, ActionSpace] = {
    "discrete": DiscreteSpace(3),
    "box": BoxSpace(np.array([-2.0, 0.5, -1.0], np.float32), np.array([-1.0, 30.0, 1.0], np.float32)),
    "multidiscrete": MultiDiscreteSpace((3, 2, 4)),
}


@dataclass
class Reference:
    about: dict[str, Any]
    arrays: dict[str, NDArray[np.float32]]

    def policy(self, **how: Any) -> Policy:
        weights = {
            key.removeprefix("weights/"): array for key, array in self.arrays.items() if "weights/" in key
        }
        return Policy(
            weights,
            box(self.arrays["observations"].shape[1]),
            SPACES[self.about["space"]],
            activation=self.about["activation"],
            head_activation=self.about["head_activation"],
            **how,
        )

    @property
    def actions(self) -> NDArray[Any]:
        kind = np.float32 if self.about["space"] == "box" else np.int64
        return self.arrays["actions"].astype(kind)


@cache
def references() -> dict[str, Reference]:
    found = {}
    with np.load(FILE, allow_pickle=False) as archive:
        for name in archive.files:
            if name.endswith(": about"):
                continue
            about = json.loads(archive[f"{name}: about"].tobytes())
            numbers, at, arrays = archive[name], 0, {}
            for key, shape in about["shapes"].items():
                size = int(np.prod(shape))
                arrays[key] = numbers[at : at + size].reshape(shape)
                at += size
            assert at == len(numbers)
            found[name] = Reference(about, arrays)
    return found


@pytest.mark.parametrize("name", references())
def test_the_numbers_log_probabilities_and_greedy_actions_are_rllibs(name: str) -> None:
    reference = references()[name]
    policy, greedy = reference.policy(), reference.policy(explore=False)
    arrays = reference.arrays
    observations = arrays["observations"]
    rows = [(policy.act(row).dist_inputs, greedy.act(row).action) for row in observations]
    for found, expected in (
        (policy.act(observations).dist_inputs, arrays["dist_inputs"]),
        (np.stack([inputs for inputs, _ in rows]), arrays["dist_inputs"]),
        (policy.logp(arrays["dist_inputs"], reference.actions), arrays["logp"]),
        (greedy.act(observations).action, arrays["greedy"]),
        (np.stack([action for _, action in rows]), arrays["greedy"]),
    ):
        assert np.abs(found - expected).max() < LIMIT


@pytest.mark.parametrize(
    "name", [name for name in references() if references()[name].about["space"] == "box"]
)
def test_what_goes_to_the_simulator_is_what_rllib_sends_its_environments(name: str) -> None:
    reference = references()[name]
    normalised = reference.policy()._send
    clipped = reference.policy(normalize_actions=False, clip_actions=True)._send
    assert normalised is not None
    assert clipped is not None
    assert np.abs(normalised(reference.actions) - reference.arrays["unsquashed"]).max() < LIMIT
    assert np.array_equal(clipped(reference.actions), reference.arrays["clipped"])


# --- weights as a real server of RLlink sent them: a SET_STATE of Ray 2.60.0, byte for byte ------------------------
