"""What is told of a policy that nobody runs."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import ConfigurationError
from ospbridge.policy.describing import describe
from ospbridge.policy.onnx_signature import TensorType, read_signature
from tests.policy.onnx_models import described, linear_model, model, node, number, recorded, tensor
from tests.policy.weights import module_weights


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


def test_an_initialiser_among_the_inputs_is_none_of_them() -> None:
    matrix = np.zeros((3, 2), np.float32)
    found = read_signature(linear_model(matrix, more_inputs=[described("w", [3, 2])]))
    assert [each.name for each in found.inputs] == ["x"]


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


def test_an_odd_number_stands_for_choices_only_and_free_deviations_for_a_box_only() -> None:
    weights = module_weights(inputs=5, hiddens=(8,), outputs=3)
    assert describe(weights).actions == ("one of 3 choices",)
    weights["pi.log_std"] = np.zeros(3, np.float32)
    assert describe(weights).actions == ("a box of 3 numbers",)


def test_weights_that_no_policy_is_made_from_are_listed_with_the_reason() -> None:
    found = describe({"lstm.weight": np.zeros((2, 3), np.float32)})
    assert found.arrays == (("lstm.weight", (2, 3)),)
    assert "no key that begins with" in found.trouble


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
"""Keys and shapes of Ray 2.60.0, as those below."""
CNN = {
    "encoder.encoder.net.0.cnn.1.weight": (16, 3, 4, 4),
    "encoder.encoder.net.0.cnn.1.bias": (16,),
    "pi.net.mlp.0.weight": (3, 14112),
    "pi.net.mlp.0.bias": (3,),
}
DQN = {
    "encoder.net.mlp.0.weight": (256, 5),
    "encoder.net.mlp.0.bias": (256,),
    "af.log_std_clip_param_const": (1,),
    "af.net.mlp.0.weight": (3, 256),
    "af.net.mlp.0.bias": (3,),
    "vf.log_std_clip_param_const": (1,),
    "vf.net.mlp.0.weight": (1, 256),
    "vf.net.mlp.0.bias": (1,),
}
SAC = {
    "pi_encoder.net.mlp.0.weight": (256, 5),
    "pi_encoder.net.mlp.0.bias": (256,),
    "pi.log_std_clip_param_const": (1,),
    "pi.net.mlp.0.weight": (4, 256),
    "pi.net.mlp.0.bias": (4,),
}


@pytest.mark.parametrize(
    "shapes, observation, outputs, actions",
    [
        (LSTM, 5, 4, ("one of 4 choices", "a box of 2 numbers")),
        (LSTM | {"pi.log_std": (4,)}, 5, 8, ("a box of 4 numbers",)),
        (
            {name.replace("encoder.encoder", "encoder.actor_encoder"): shape for name, shape in LSTM.items()},
            5,
            4,
            ("one of 4 choices", "a box of 2 numbers"),
        ),
        (DQN, 5, None, ()),
        (SAC, 5, 4, ("one of 4 choices", "a box of 2 numbers")),
        (CNN, None, 3, ("one of 3 choices",)),
        ({name: shape for name, shape in LSTM.items() if not name.startswith("pi.net")}, 5, None, ()),
    ],
    ids=["LSTM", "free deviations", "layers not shared", "DQN", "SAC", "CNN", "no head"],
)
def test_a_module_that_nobody_can_act_from_tells_its_widths_where_its_weights_do(
    shapes: dict[str, tuple[int, ...]], observation: int | None, outputs: int | None, actions: tuple[str, ...]
) -> None:
    found = describe({name: np.zeros(shape, np.float32) for name, shape in shapes.items()})
    assert (found.observation, found.outputs, found.actions) == (observation, outputs, actions)
    assert found.trouble


@pytest.mark.parametrize("nodes", [["Clip"], ["Concat", "MatMul"], ["Concat", "Identity"]], ids=" and ".join)
def test_a_model_that_joins_something_else_may_be_of_choices_as_well(nodes: list[str]) -> None:
    chain = [node(operator, [str(at)], [str(at + 1)]) for at, operator in enumerate(nodes)]
    found = model(
        chain,
        [tensor("w", np.zeros((3, 2), np.float32))],
        [described("0", [1, 3])],
        [described(str(len(nodes)), [1, 2])],
    )
    assert describe(found).actions == ("one of 2 choices", "a box of 1 number")


def test_a_number_of_more_bits_than_protobuf_keeps_is_read_as_protobuf_reads_it() -> None:
    found = describe(recorded("discrete") + number(1, 2**69 + 9)).onnx
    assert found is not None
    assert found.ir_version == 9
