"""What of an ONNX model is looked at before a runtime sees it: its size, and whether it is all there.

A model is a protobuf message. Only what leads to tensors is read: graph, functions, nodes, attributes. Refused are
tensors whose data is in another file (the runtime would open it), and graphs within nodes, which loops and branches
have (a loop may never end).

Facts: ``onnx.proto3`` of ONNX 1.19, protobuf's encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LARGEST", "check_model", "fields"]

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a model."""

_VARINT, _LENGTH = 0, 2
_FIXED: Final = {1: 8, 5: 4}

_GRAPH, _FUNCTION = 7, 25
_TENSOR: Final = "tensor"
_WITHIN: Final[dict[str, dict[int, str]]] = {
    "model": {_GRAPH: "graph", _FUNCTION: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 10: _TENSOR, 22: "sparse", 23: "sparse", 6: "subgraph", 11: "subgraph"},
    "sparse": {1: _TENSOR, 2: _TENSOR},
}
"""Which fields of a message lead on, and to what."""
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14


def check_model(data: bytes) -> None:
    """Raises ConfigurationError for what is no ONNX model, or is not to be run."""
    if len(data) > LARGEST:
        raise ConfigurationError(
            f"an ONNX model has {len(data)} bytes, at most {LARGEST} are read",
            hint="policies of this size are not supported",
        )
    view = memoryview(data)
    try:
        graphs = sum(1 for number, *_ in fields(view, 0, len(view)) if number == _GRAPH)
        if graphs:
            _check(view, 0, len(view), "model")
    except (IndexError, ValueError):
        graphs = 0
    if not graphs:
        raise ConfigurationError(
            f"{len(data)} bytes are no ONNX model, or not the whole of one: [{data[:16].hex(' ')} ...]",
            hint="export the policy again; an ONNX file begins with its version, bytes 08 0N",
        )


def _check(view: memoryview, begin: int, end: int, kind: str) -> None:
    """Raises ConfigurationError, and ValueError or IndexError for what is no such message."""
    if kind == "subgraph":
        raise ConfigurationError(
            "the ONNX model has a graph within a node, as loops and branches have",
            hint="export the policy without control flow",
        )
    for number, wire, first, last in fields(view, begin, end):
        if kind == _TENSOR:
            if (number == _EXTERNAL_DATA and wire == _LENGTH) or (number == _DATA_LOCATION and first):
                raise ConfigurationError(
                    "the weights of the ONNX model are in another file, which is never opened",
                    hint="export it with external_data=False (torch), or save_as_external_data=False (onnx)",
                )
        elif wire == _LENGTH and number in _WITHIN[kind]:
            _check(view, first, last, _WITHIN[kind][number])


def fields(view: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field's number and wire type; then where it begins and ends, or its value and 0 for a varint."""
    at = begin
    while at < end:
        key, at = _varint(view, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(view, at)
            yield number, wire, value, 0
            continue
        if wire == _LENGTH:
            length, at = _varint(view, at)
        else:
            length = _FIXED.get(wire, -1)
        if not 0 <= length <= end - at:
            raise ValueError(f"field {number} has wire type {wire} and {length} bytes")
        yield number, wire, at, at + length
        at += length
    if at != end:
        raise ValueError("a number reaches beyond its message")


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """The number at ``at``, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number has more than ten bytes")
