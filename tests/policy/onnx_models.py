"""ONNX models for tests: small ones that are written here byte by byte, and those that a real RLlib sent."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ospbridge.policy.onnx import fields

TRACES = Path(__file__).parent / "traces"
FLOAT, INTEGER = 1, 7


def recorded(name: str) -> bytes:
    """The model that Ray 2.47.1 sent in a SET_STATE, whose body is stored as it came."""
    message = json.loads((TRACES / f"ray247_{name}.json").read_bytes())
    return gzip.decompress(base64.b64decode(message["onnx_file"]))


def initialisers(model: bytes) -> dict[str, NDArray[np.float32]]:
    """The tensors of a model's graph, by their names."""
    view = memoryview(model)
    found = {}
    for number, _, begin, end in fields(view, 0, len(view)):
        if number != 7:
            continue
        for inner, _, first, last in fields(view, begin, end):
            if inner == 5:
                inner_fields = [(n, v, w) for n, _, v, w in fields(view, first, last)]
                shape = [value for n, value, _ in inner_fields if n == 1]
                (name,) = (bytes(view[v:w]).decode() for n, v, w in inner_fields if n == 8)
                (data,) = (view[v:w] for n, v, w in inner_fields if n == 9)
                found[name] = np.frombuffer(data, "<f4").reshape(shape)
    return found


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def part(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*data, value])


def tensor(name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    dims = b"".join(number(1, size) for size in array.shape)
    kind, layout = (FLOAT, "<f4") if array.dtype == np.float32 else (INTEGER, "<i8")
    return dims + number(2, kind) + part(8, name) + part(9, array.astype(layout).tobytes())


def described(name: str, shape: Sequence[int | str], kind: int = FLOAT) -> bytes:
    """An input or output; a text is a dimension of any size."""
    dims = b"".join(part(1, number(1, d) if isinstance(d, int) else part(2, d)) for d in shape)
    return part(1, name) + part(2, part(1, number(1, kind) + part(2, dims)))


def node(operator: str, taken: Sequence[str], given: Sequence[str], *attributes: bytes) -> bytes:
    return (
        b"".join(part(1, name) for name in taken)
        + b"".join(part(2, name) for name in given)
        + part(4, operator)
        + b"".join(part(5, attribute) for attribute in attributes)
    )


def model(
    nodes: Sequence[bytes],
    tensors: Sequence[bytes],
    inputs: Sequence[bytes],
    outputs: Sequence[bytes],
) -> bytes:
    graph = (
        b"".join(part(1, each) for each in nodes)
        + part(2, "g")
        + b"".join(part(5, each) for each in tensors)
        + b"".join(part(11, each) for each in inputs)
        + b"".join(part(12, each) for each in outputs)
    )
    return number(1, 8) + part(7, graph) + part(8, number(2, 17))


def linear_model(matrix: NDArray[np.float32], batch: int | str = "batch") -> bytes:
    """float32[batch, n] @ float32[n, k]."""
    return model(
        [node("MatMul", ["x", "w"], ["y"])],
        [tensor("w", matrix)],
        [described("x", [batch, matrix.shape[0]])],
        [described("y", [batch, matrix.shape[1]])],
    )
