"""Policies in files and models as they come: what is read, and what is refused with a reason."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DiscreteSpace
from ospbridge.policy import files, onnx
from ospbridge.policy.acting import Policy
from ospbridge.policy.files import read_policy
from ospbridge.policy.onnx import check_model
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
from tests.policy.weights import box, module_weights


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def written(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_weights_come_back_as_they_were_saved(tmp_path: Path, save: Any) -> None:
    weights = module_weights()
    save(tmp_path / "policy.npz", **weights)
    found = read_policy(tmp_path / "policy.npz")
    assert isinstance(found, dict)
    assert list(found) == list(weights)
    for key, array in weights.items():
        assert found[key].dtype == np.float32
        assert np.array_equal(found[key], array)
    Policy(found, box(4), DiscreteSpace(2))


def test_a_model_comes_back_as_its_bytes(tmp_path: Path) -> None:
    model = recorded("discrete")
    assert read_policy(written(tmp_path, "policy.onnx", model)) == model


def test_a_file_is_known_by_its_name_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"policy\.pt' does not end with \.onnx or \.npz") as caught:
        read_policy(written(tmp_path, "policy.pt", recorded("box")))
    assert ".onnx" in caught.value.hint


@pytest.mark.parametrize("name", ["policy.onnx", "policy.npz"])
def test_a_missing_file_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_policy(tmp_path / name)


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    for name in ("policy.onnx", "policy.npz"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ConfigurationError, match="it is a pipe or a device"):
            read_policy(tmp_path / name)


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "no npz file of weights"),
        (recorded("box"), "no npz file of weights"),
        (npz(), "has no arrays"),
        (npz(choices=np.arange(3)), r"'choices\.npy' is an array of int64, expected float32"),
        (npz(names=np.array(["tanh"])), "is an array of <U4"),
        (npz(objects=np.array([{}], object)), "is an array of object"),
    ],
)
def test_an_npz_file_without_weights_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = written(tmp_path, "policy.npz", data)
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_policy(path)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_an_array_that_claims_more_than_it_has_is_refused_unread(tmp_path: Path) -> None:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    archived = io.BytesIO()
    with zipfile.ZipFile(archived, "w") as archive:
        archive.writestr("pi.npy", file.getvalue() + bytes(16))
    with pytest.raises(
        ConfigurationError, match=r"'pi\.npy' has 16 bytes, expected float32 of shape \(1000000, "
    ):
        read_policy(written(tmp_path, "policy.npz", archived.getvalue()))


@pytest.mark.parametrize("limit, name", [(90, "policy.onnx"), (90, "policy.npz"), (2000, "policy.npz")])
def test_a_file_beyond_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, name: str
) -> None:
    """Of an archive, what it would decompress to counts too."""
    path = tmp_path / name
    if name.endswith("npz"):
        np.savez_compressed(path, zeros=np.zeros(10_000, np.float32))
        assert path.stat().st_size < 2000
    else:
        path.write_bytes(recorded("box"))
    monkeypatch.setattr(files, "LARGEST", limit)
    with pytest.raises(ConfigurationError, match=f"bytes, at most {limit} are read"):
        read_policy(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_of_an_npz_file_is_refused_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    damaged = bytearray(SMALL)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ConfigurationError):
        read_policy(written(tmp_path, "policy.npz", bytes(damaged)))


SMALL = npz(a=np.zeros((2, 3), np.float32))


# --- what of an ONNX model is refused before any runtime sees it ---------------------------------------------------


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
        linear_model(MATRIX)
        + part(25, part(1, "f") + part(7, constant(part(5, tensor("t", MATRIX) + FILE)))),
    ],
    ids=["external", "file", "both", "constant", "constants", "function"],
)
def test_weights_in_another_file_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="in another file, which is never opened") as caught:
        check_model(data)
    assert "external_data=False" in caught.value.hint


@pytest.mark.parametrize(
    "data",
    [
        model([constant(part(22, part(1, tensor("values", MATRIX))))], [], [], []),
        model([constant(part(23, part(2, tensor("indices", MATRIX))))], [], [], []),
        model([], [], [], []) + part(7, part(15, part(1, tensor("values", MATRIX)))),
    ],
    ids=["attribute", "attributes", "graph"],
)
def test_sparse_tensors_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigurationError, match="sparse tensor"):
        check_model(data)


@pytest.mark.parametrize("among", ["initializers", "constants"])
def test_a_model_of_more_work_than_is_taken_is_refused_and_the_option_is_told(among: str) -> None:
    """Forty products with one matrix: its bytes are there once, and are gone through forty times."""
    matrix = tensor("w", np.ones((60, 60), np.float32))
    products = [node("MatMul", [f"x{at}", "w"], [f"x{at + 1}"]) for at in range(40)]
    if among == "constants":
        data = model([constant(part(5, matrix)), *products], [], [], [])
    else:
        data = model(products, [matrix], [], [])
    nodes = 40 + (among == "constants")
    # A tensor's own fields are counted with its numbers.
    numbers = len(matrix) // 4
    check_model(data, most_work=nodes * numbers)
    with pytest.raises(ConfigurationError, match=f"{nodes} operations, and {numbers} numbers") as caught:
        check_model(data, most_work=nodes * numbers - 1)
    assert "--rllink-most-work" in caught.value.hint


@pytest.mark.parametrize("field", [6, 11])
def test_a_loop_is_refused(field: int) -> None:
    loop = node("Loop", ["", ""], ["y"], part(1, "body") + part(field, part(2, "body")))
    with pytest.raises(ConfigurationError, match="graph within a node"):
        check_model(model([loop], [], [], []))


def test_a_model_beyond_the_limit_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    data = recorded("box")
    monkeypatch.setattr(onnx, "LARGEST", len(data))
    check_model(data)
    monkeypatch.setattr(onnx, "LARGEST", len(data) - 1)
    with pytest.raises(ConfigurationError, match=f"has {len(data)} bytes, at most {len(data) - 1}"):
        check_model(data)


def test_a_model_of_more_parts_than_any_policy_has_is_given_up_early() -> None:
    many = number(1, 8) * onnx.MOST_FIELDS
    with pytest.raises(ConfigurationError, match="more than 100000 fields"):
        check_model(many + linear_model(MATRIX))
    dims = number(1, 1) * onnx.MOST_FIELDS
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
