"""What of an ONNX model is looked at before a runtime sees it: its size, and whether it is all there.

A model is a protobuf message. Only what leads to tensors is read: graph, functions, nodes, attributes. Refused are
tensors whose data is in another file (the runtime would open it), and graphs within nodes, which loops and branches
have (a loop may never end). Refused as well is what protobuf's own readers may take for something else than this one.

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
MOST_FIELDS: Final = 100_000
"""That a model may consist of, tensors' numbers not counted: policies have some hundreds. More would take long to look
through, and whoever waits for that does nothing else meanwhile."""
LARGEST_KEY: Final = 2**32 - 1
"""Of a field: protobuf's readers leave out what is beyond, and so would see another field."""

_VARINT, _LENGTH = 0, 2
_LARGEST_VARINT: Final = 2**64 - 1
_FIXED: Final = {1: 8, 5: 4}

_GRAPH, _FUNCTION = 7, 25
_TENSOR: Final = "tensor"
_WITHIN: Final[dict[str, dict[int, str]]] = {
    "model": {_GRAPH: "graph", _FUNCTION: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: "sparse"},
    "function": {7: "node", 11: "attribute"},
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
    look = _Look(memoryview(data))
    try:
        look.into(0, len(data), "model")
        graphs = look.graphs
    except (IndexError, ValueError):
        graphs = 0
    if not graphs:
        raise ConfigurationError(
            f"{len(data)} bytes are no ONNX model, or not the whole of one: [{data[:16].hex(' ')} ...]",
            hint="export the policy again; an ONNX file begins with its version, bytes 08 0N",
        )


class _Look:
    """At one model."""

    def __init__(self, view: memoryview) -> None:
        self.graphs = 0
        """Of the model itself."""
        self._view = view
        self._fields = 0

    def into(self, begin: int, end: int, kind: str) -> None:
        """Raises ConfigurationError, and ValueError or IndexError for what is no such message."""
        if kind == "subgraph":
            raise ConfigurationError(
                "the ONNX model has a graph within a node, as loops and branches have",
                hint="export the policy without control flow",
            )
        for number, wire, first, last in fields(self._view, begin, end):
            self._fields += 1
            if self._fields > MOST_FIELDS:
                raise ConfigurationError(
                    f"the ONNX model has more than {MOST_FIELDS} fields, which no policy has",
                    hint="export the policy again, with its weights packed",
                )
            if kind == _TENSOR:
                if (number == _EXTERNAL_DATA and wire == _LENGTH) or (number == _DATA_LOCATION and first):
                    raise ConfigurationError(
                        "the weights of the ONNX model are in another file, which is never opened",
                        hint="export it with external_data=False (torch), or save_as_external_data=False (onnx)",
                    )
                continue
            self.graphs += kind == "model" and number == _GRAPH
            if wire == _LENGTH and number in _WITHIN[kind]:
                self.into(first, last, _WITHIN[kind][number])


def fields(view: memoryview, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Each field's number and wire type; then where it begins and ends, or its value and 0 for a varint."""
    at = begin
    while at < end:
        key, at = _varint(view, at)
        number, wire = key >> 3, key & 7
        if not number or key > LARGEST_KEY:
            raise ValueError(f"there is no field {number}")
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
    """The number at ``at``, and where it ends. Of its 70 bits protobuf's readers keep 64."""
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _LARGEST_VARINT, at
    raise ValueError("a number has more than ten bytes")
