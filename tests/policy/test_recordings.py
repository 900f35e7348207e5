"""Weights as a real server of RLlink sent them: a SET_STATE of Ray 2.60.0, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from ospbridge.policy.acting import Policy
from tests.policy.onnx_models import TRACES
from tests.policy.weights import box, plainly

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sent() -> dict[str, NDArray[np.float32]]:
    message = msgspec.msgpack.decode((TRACES / "ray260_box.msgpack").read_bytes())
    return {
        key: np.frombuffer(array[b"data"], array[b"type"]).reshape(array[b"shape"])
        for key, array in message["state"]["rl_module"].items()
    }


def test_a_policy_acts_from_what_rllib_sends() -> None:
    weights = sent()
    policy = Policy(weights, box(5), box(2, -1.0, 1.0), seed=1)
    observations = np.random.default_rng(3).normal(size=(20, 5)).astype(np.float32)
    del weights["pi.log_std_clip_param_const"]
    expected = plainly(weights, observations)
    assert np.abs(policy.act(observations).dist_inputs - expected).max() < 1e-5
    assert np.abs(policy.act(observations[0]).dist_inputs - expected[0]).max() < 1e-5
