"""What of an ONNX model is refused before any runtime sees it."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import ConfigurationError
from ospbridge.policy import onnx_model
from ospbridge.policy.onnx_model import check_model
from tests.policy.onnx_models import (
    linear_model,
    model,
    node,
    number,
    part,
    recorded,
    tensor,
    varint,
)

MATRIX = np.ones((4, 2), np.float32)
EXTERNAL = number(14, 1)
FILE = part(13, part(1, "location") + part(2, "/etc/passwd"))


def constant(attribute: bytes) -> bytes:
    return node("Constant", [], ["c"], part(1, "value") + attribute)


@pytest.mark.parametrize(
    "data",
    [
        *(
            model([node("MatMul", ["x", "w"], ["y"])], [tensor("w", MATRIX) + outside], [], [])
            for outside in (EXTERNAL, FILE, EXTERNAL + FILE)
        ),
        model([constant(part(5, tensor("t", MATRIX) + FILE))], [], [], []),
        model([constant(part(10, tensor("t", MATRIX) + FILE))], [], [], []),
        model([constant(part(22, part(1, tensor("values", MATRIX) + FILE)))], [], [], []),
        model([constant(part(23, part(2, tensor("indices", MATRIX) + EXTERNAL)))], [], [], []),
        linear_model(MATRIX)
        + part(25, part(1, "f") + part(7, constant(part(5, tensor("t", MATRIX) + FILE)))),
    ],
    ids=["external", "file", "both", "constant", "constants", "sparse values", "sparse indices", "function"],
)
def test_weights_in_another_file_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="in another file, which is never opened") as caught:
        check_model(data)
    assert "external_data=False" in caught.value.hint


@pytest.mark.parametrize("field", [6, 11])
def test_a_loop_is_refused(field: int) -> None:
    loop = node("Loop", ["", ""], ["y"], part(1, "body") + part(field, part(2, "body")))
    with pytest.raises(ConfigurationError, match="graph within a node"):
        check_model(model([loop], [], [], []))


def test_a_model_beyond_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = recorded("box")
    monkeypatch.setattr(onnx_model, "LARGEST", len(data))
    check_model(data)
    monkeypatch.setattr(onnx_model, "LARGEST", len(data) - 1)
    with pytest.raises(ConfigurationError, match=f"has {len(data)} bytes, at most {len(data) - 1}"):
        check_model(data)


def test_a_model_of_more_parts_than_any_policy_has_is_given_up_early() -> None:
    many = number(1, 8) * onnx_model.MOST_FIELDS
    with pytest.raises(ConfigurationError, match="more than 100000 fields"):
        check_model(many + linear_model(MATRIX))
    dims = number(1, 1) * onnx_model.MOST_FIELDS
    with pytest.raises(ConfigurationError, match="more than 100000 fields"):
        check_model(model([], [tensor("w", MATRIX) + dims], [], []))


@pytest.mark.parametrize("hidden", [6, 11])
def test_fields_that_another_reader_would_see_elsewhere_are_refused(hidden: int) -> None:
    beyond = varint((hidden << 3 | 2) + 2**32) + varint(4) + b"body"
    loop = node("Loop", ["", ""], ["y"], part(1, "body") + beyond)
    with pytest.raises(ConfigurationError, match="no ONNX model"):
        check_model(model([loop], [], [], []))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes(1000),
        b"{}",
        b"\x1f\x8b\x08\x00",
        b"\x18\x00\x00\x00ORTM",
        number(1, 8),
        b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="no ONNX model"):
        check_model(data)


@given(st.integers(0, 1700), st.integers(0, 255))
def test_any_damage_is_accepted_or_refused(at: int, value: int) -> None:
    data = bytearray(recorded("discrete"))
    data[at] = value
    with contextlib.suppress(ConfigurationError):
        check_model(bytes(data))
