"""Networks in numpy: what keys and shapes tell, rows and batches, and weights that must not be acted from."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ospbridge.errors import ConfigurationError
from ospbridge.policy.describing import describe
from ospbridge.policy.onnx import TensorType, read_signature
from ospbridge.policy.rlmodule import ACTIVATIONS, NumpyModule, named_activation, read_architecture
from tests.policy.onnx_models import recorded
from tests.policy.weights import SEPARATE, SHARED, dense, module_weights

RANDOM = np.random.default_rng(3)
OBSERVATIONS = RANDOM.normal(size=(7, 4)).astype(np.float32)


def made(
    weights: dict[str, NDArray[Any]], *, outputs: int = 2, gaussian: bool = False, **how: str
) -> NumpyModule:
    return NumpyModule(weights, inputs=4, outputs=outputs, gaussian=gaussian, **how)


@pytest.mark.parametrize("key", [key for key in module_weights() if "mlp" in key])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(key: str, value: float) -> None:
    weights = module_weights(seed=2)
    weights[key].flat[1] = value
    with pytest.raises(ConfigurationError, match=f"1 of {weights[key].size} numbers of '{key}' are NaN"):
        made(weights)


@pytest.mark.parametrize("dtype", [np.int64, np.complex64, object, "U4"])
def test_weights_that_are_no_floating_numbers_are_refused(dtype: Any) -> None:
    weights: dict[str, NDArray[Any]] = {**module_weights()}
    weights["pi.net.mlp.0.bias"] = np.zeros(2).astype(dtype)
    with pytest.raises(ConfigurationError, match=r"'pi\.net\.mlp\.0\.bias' is of .*, expected float32"):
        made(weights)


# --- a Gaussian's deviations ----------------------------------------------------------------------------------------


# --- activations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "linear"])
def test_no_activation_overflows_or_warns(name: str) -> None:
    function = named_activation(name)
    assert function is not None
    x = np.array([-1e30, -1e4, -89.0, 0.0, 89.0, 1e4], np.float32)
    with np.errstate(all="raise", under="ignore"):
        function(x)
    assert np.isfinite(x).all()


def test_an_activation_is_refused_where_the_keys_show_that_there_is_none() -> None:
    weights = module_weights(4, (8,)) | dense(RANDOM, f"{SHARED}net.mlp.1.", 8, 8)
    made(weights, activation="linear")
    with pytest.raises(
        ConfigurationError, match=r"no activation behind '.*mlp\.0\.weight', but activation is 'tanh'"
    ):
        made(weights)


def test_linear_is_refused_where_the_keys_show_an_activation() -> None:
    with pytest.raises(
        ConfigurationError, match=r"an activation behind .*, but activation is 'linear'"
    ) as caught:
        made(module_weights(), activation="linear")
    assert "fcnet_activation" in caught.value.hint


# --- what the keys and shapes of weights tell ----------------------------------------------------------------------


def test_the_actors_own_encoder_is_taken_where_the_critic_has_one_too() -> None:
    weights = module_weights(5, encoder=SEPARATE)
    weights |= dense(RANDOM, "encoder.critic_encoder.net.mlp.0.", 5, 99)
    assert read_architecture(weights).encoder[0].weight.startswith(SEPARATE)


def test_the_weights_of_another_algorithm_are_refused_with_what_is_supported() -> None:
    with pytest.raises(ConfigurationError, match=r"their keys are .*qf\.net") as caught:
        read_architecture(dense(RANDOM, "qf.net.mlp.0.", 4, 2))
    assert "supported are" in caught.value.hint


@pytest.mark.parametrize(
    "key, what, way_out",
    [
        # An ONNX file of these would need a state that nobody carries on.
        ("encoder.encoder.lstm.weight_ih_l0", "an LSTM", "use_lstm=False"),
        ("encoder.encoder.tokenizer.net.mlp.0.weight", "the tokenizer of an LSTM", "use_lstm=False"),
        ("encoder.encoder.gru.weight_ih_l0", "a GRU", "use_lstm=False"),
        ("encoder.encoder.net.0.cnn.1.weight", "a CNN", "export the policy as an ONNX file"),
        ("pi.something.weight", "no dense layer", "let RLlib's own env runners attach"),
    ],
)
def test_what_is_no_dense_layer_is_refused_by_its_name(key: str, what: str, way_out: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{key}' belongs to {what}") as caught:
        read_architecture(module_weights() | {key: np.zeros((4, 4), np.float32)})
    assert way_out in caught.value.hint


@pytest.mark.parametrize("key", [key for key in module_weights() if "mlp" in key])
def test_a_missing_key_is_named(key: str) -> None:
    weights = module_weights()
    del weights[key]
    with pytest.raises(ConfigurationError, match=key):
        read_architecture(weights)


@pytest.mark.parametrize(
    "key, shape, expected",
    [
        (f"{SHARED}net.mlp.2.weight", (6, 9), r"\(6, 9\), expected \(outputs, 8\)"),
        (f"{SHARED}net.mlp.0.weight", (8, 4, 1), r"\(8, 4, 1\), expected \(outputs, inputs\)"),
        (f"{SHARED}net.mlp.0.weight", (0, 4), r"\(0, 4\), expected \(outputs, inputs\)"),
        (f"{SHARED}net.mlp.2.bias", (5,), r"\(5,\), expected \(6,\)"),
        ("pi.net.mlp.0.weight", (2, 5), r"\(2, 5\), expected \(outputs, 6\)"),
        ("pi.log_std", (3,), r"\(3,\), expected \(2,\)"),
    ],
)
def test_a_wrong_shape_is_told_with_the_key_and_the_right_one(
    key: str, shape: tuple[int, ...], expected: str
) -> None:
    weights = module_weights() | {key: np.zeros(shape, np.float32)}
    with pytest.raises(ConfigurationError, match=f"'{key}' has shape {expected}"):
        read_architecture(weights)


# --- what is told of a policy that nobody runs -------------------------------------------------------------------


def test_a_recorded_model_of_choices_tells_its_versions_ends_and_operators() -> None:
    found = describe(recorded("discrete"))
    assert (found.kind, found.observation, found.outputs) == ("onnx", 4, 3)
    assert found.actions == ("one of 3 choices",)
    assert found.onnx is not None
    assert (found.onnx.ir_version, found.onnx.opset, found.onnx.producer) == (9, 20, "pytorch 2.13.0")
    assert found.onnx.inputs == (TensorType("onnx::Gemm_0", "float32", (1, 4)),)
    assert found.onnx.outputs == (TensorType("12", "float32", (1, 3)),)
    assert found.onnx.operators == ("Gemm", "Tanh")
    assert found.trouble == ""


def test_what_is_no_model_is_told_with_the_reason() -> None:
    found = describe(b"no model at all")
    assert (found.kind, found.size, found.onnx) == ("onnx", 15, None)
    assert "no ONNX model" in found.trouble


@given(st.integers(0, 30_000), st.binary(min_size=1, max_size=4))
def test_a_spoilt_model_is_read_or_refused_and_nothing_else(at: int, put: bytes) -> None:
    spoilt = bytearray(recorded("discrete"))
    at %= len(spoilt)
    spoilt[at : at + len(put)] = put
    with contextlib.suppress(ConfigurationError):
        found = read_signature(bytes(spoilt))
        assert all(len(each.name) <= 80 for each in (*found.inputs, *found.outputs))


def test_weights_tell_sizes_and_both_spaces_that_an_even_number_may_stand_for() -> None:
    weights = module_weights(inputs=5, hiddens=(8, 6), outputs=4)
    found = describe(weights)
    assert (found.kind, found.observation, found.outputs) == ("rlmodule", 5, 4)
    assert found.layers == (8, 6, 4)
    assert found.actions == ("one of 4 choices", "a box of 2 numbers")
    assert found.arrays is not None
    assert dict(found.arrays)["pi.net.mlp.0.weight"] == (4, 6)
    assert found.size == sum(array.nbytes for array in weights.values())


LSTM = {
    "encoder.encoder.tokenizer.net.mlp.0.weight": (32, 5),
    "encoder.encoder.tokenizer.net.mlp.0.bias": (32,),
    "encoder.encoder.lstm.weight_ih_l0": (28, 32),
    "encoder.encoder.lstm.weight_hh_l0": (28, 7),
    "pi.log_std_clip_param_const": (1,),
    "pi.net.mlp.0.weight": (9, 7),
    "pi.net.mlp.0.bias": (9,),
    "pi.net.mlp.2.weight": (4, 9),
    "pi.net.mlp.2.bias": (4,),
}
"""Keys and shapes of Ray 2.60.0."""


@pytest.mark.parametrize(
    "shapes, observation, outputs, actions",
    [
        (LSTM, 5, 4, ("one of 4 choices", "a box of 2 numbers")),
        (LSTM | {"pi.log_std": (4,)}, 5, 8, ("a box of 4 numbers",)),
        ({name: shape for name, shape in LSTM.items() if not name.startswith("pi.net")}, 5, None, ()),
    ],
    ids=["LSTM", "free deviations", "no head"],
)
def test_a_module_that_nobody_can_act_from_tells_its_widths_where_its_weights_do(
    shapes: dict[str, tuple[int, ...]], observation: int | None, outputs: int | None, actions: tuple[str, ...]
) -> None:
    found = describe({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    assert (found.observation, found.outputs, found.actions) == (observation, outputs, actions)
    assert found.trouble
