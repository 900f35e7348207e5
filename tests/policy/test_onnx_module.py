"""ONNX models at work, in a real runtime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.policy import onnx
from ospbridge.policy.onnx import OnnxModule
from ospbridge.policy.rlmodule import NumpyModule
from tests.policy.onnx_models import (
    described,
    initialisers,
    linear_model,
    model,
    node,
    recorded,
    tensor,
)
from tests.policy.weights import plainly

pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

RANDOM = np.random.default_rng(3)
MATRIX = RANDOM.normal(size=(4, 2)).astype(np.float32)
OBSERVATIONS = RANDOM.normal(size=(7, 4)).astype(np.float32)
DOUBLE = 11


def relu(x: Any) -> Any:
    return np.maximum(x, 0.0)


@pytest.mark.parametrize(
    "name, inputs, outputs, function", [("discrete", 4, 3, np.tanh), ("box", 6, 4, relu)]
)
def test_what_rllib_sends_gives_what_its_weights_give(
    name: str, inputs: int, outputs: int, function: Callable[[Any], Any]
) -> None:
    module = OnnxModule(recorded(name), inputs=inputs, outputs=outputs)
    weights = {key: array for key, array in initialisers(recorded(name)).items() if "mlp" in key}
    observations = RANDOM.normal(size=(9, inputs)).astype(np.float32)
    expected = plainly(weights, observations, function)
    assert np.abs(module.forward(observations) - expected).max() < 1e-5
    assert np.abs(np.stack([module.forward_row(row) for row in observations]) - expected).max() < 1e-5
    activation = "tanh" if function is np.tanh else "relu"
    ours = NumpyModule(weights, inputs=inputs, outputs=outputs, gaussian=name == "box", activation=activation)
    assert np.abs(ours.forward(observations) - expected).max() < 1e-5


def test_a_model_that_takes_longer_than_its_bytes_tell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((1.0, 1.5, 2.0, 2.75))
    monkeypatch.setattr(onnx, "thread_time", lambda: next(times))
    work = 2_000_000_000
    OnnxModule(linear_model(MATRIX), inputs=4, outputs=2, most_work=work)
    with pytest.raises(ConfigurationError, match=r"takes 0\.75 s of a core for a decision, more than 0\.5 s"):
        OnnxModule(linear_model(MATRIX), inputs=4, outputs=2, most_work=work)


@pytest.mark.parametrize("batch", [1, "batch"])
def test_a_batch_goes_through_a_model_of_one_row_too(batch: int | str) -> None:
    module = OnnxModule(linear_model(MATRIX, batch), inputs=4, outputs=2)
    assert np.abs(module.forward(OBSERVATIONS) - OBSERVATIONS @ MATRIX).max() < 1e-5
    assert np.abs(module.forward_row(OBSERVATIONS[0]) - OBSERVATIONS[0] @ MATRIX).max() < 1e-5
    assert module.forward(OBSERVATIONS[:0]).shape == (0, 2)


def test_a_model_that_only_calls_its_batch_open_gets_one_row_at_a_time() -> None:
    data = model(
        [node("Reshape", ["x", "one"], ["row"]), node("MatMul", ["row", "w"], ["y"])],
        [tensor("one", np.array([1, 4])), tensor("w", MATRIX)],
        [described("x", ["n", 4])],
        [described("y", ["n", 2])],
    )
    module = OnnxModule(data, inputs=4, outputs=2)
    assert np.abs(module.forward(OBSERVATIONS) - OBSERVATIONS @ MATRIX).max() < 1e-5


@pytest.mark.parametrize(
    "data, said",
    [
        (
            linear_model(np.ones((5, 2), np.float32)),
            r"input 'x' .* expected \[\.\.\., 4\]: the agent's observation",
        ),
        (
            linear_model(np.ones((4, 3), np.float32)),
            r"output 'y' .* is float32\(1, 3\), expected float32\(1, 2\)",
        ),
        (linear_model(MATRIX, 2), r"expected tensor\(float\)\[1 or any, 4\]"),
        (linear_model(MATRIX * np.inf), r"is \[.*(nan|inf).*\] for an observation of zeros"),
        (
            model(
                [node("Relu", ["x"], ["y"])],
                [],
                [described("x", [1, 4], DOUBLE)],
                [described("y", [1, 4], DOUBLE)],
            ),
            r"input 'x' .* is tensor\(double\)",
        ),
        (
            model(
                [node("NoSuchOperator", ["x"], ["y"])], [], [described("x", [1, 4])], [described("y", [1, 4])]
            ),
            "cannot load the model: .*NoSuchOperator",
        ),
    ],
)
def test_a_model_that_does_not_fit_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        OnnxModule(data, inputs=4, outputs=2)
    assert caught.value.hint


def test_without_the_runtime_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigurationError, match="needs ONNX Runtime") as caught:
        OnnxModule(linear_model(MATRIX), inputs=4, outputs=2)
    assert caught.value.hint == "pip install 'ospbridge[onnx]'"
