"""What an ONNX model says of itself: versions, inputs, outputs and operators. For people; nothing is run.

Facts: ``onnx.proto3`` of ONNX 1.19.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.policy.onnx_model import check_model, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Signature", "TensorType", "read_signature"]

MOST_TENSORS: Final = 32
MOST_OPERATORS: Final = 64
MOST_DIMENSIONS: Final = 16
LONGEST_NAME: Final = 80
_VARINT, _LENGTH = 0, 2
_ELEMENTS: Final = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64"}


@dataclass(frozen=True, slots=True)
class TensorType:
    """An input or output. A dimension of any size is a text, empty where it has no name."""

    name: str
    type: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What there is of each, up to a few dozen; what a model does not say is 0 or empty."""

    ir_version: int
    opset: int
    """Of ONNX's own operators."""
    producer: str
    inputs: tuple[TensorType, ...]
    """Initialisers that a model also counts among its inputs are left out."""
    outputs: tuple[TensorType, ...]
    operators: tuple[str, ...]
    """Each once, sorted."""
    last: str = ""
    """The one that makes the first output."""


def read_signature(model: bytes) -> Signature:
    """Raises ConfigurationError for what is no ONNX model, or is not to be run."""
    check_model(model)
    try:
        return _signature(memoryview(model))
    except (IndexError, ValueError) as error:
        raise ConfigurationError(
            f"the ONNX model of {len(model)} bytes is damaged: {error}", hint="export the policy again"
        ) from None


_Span = tuple[int, int]


def _signature(view: memoryview) -> Signature:
    whole = (0, len(view))
    (graph, *_) = _parts(view, whole, 7)
    weights = {_text(view, part, 8) for part in _parts(view, graph, 5)}
    taken = (_tensor(view, part) for part in _parts(view, graph, 11))
    operators = {_text(view, part, 4) for part in _parts(view, graph, 1)}
    return Signature(
        ir_version=_number(view, whole, 1),
        opset=max(
            (_number(view, part, 2) for part in _parts(view, whole, 8) if not _text(view, part, 1)), default=0
        ),
        producer=f"{_text(view, whole, 2)} {_text(view, whole, 3)}".strip(),
        inputs=tuple(islice((each for each in taken if each.name not in weights), MOST_TENSORS)),
        outputs=tuple(_tensor(view, part) for part in islice(_parts(view, graph, 12), MOST_TENSORS)),
        operators=tuple(sorted(operators)[:MOST_OPERATORS]),
        last=_last(view, graph),
    )


def _last(view: memoryview, graph: _Span) -> str:
    output = next((_text(view, part, 1) for part in _parts(view, graph, 12)), None)
    makers = (node for node in _parts(view, graph, 1) if _text(view, node, 2) == output)
    return next((_text(view, node, 4) for node in makers), "")


def _parts(view: memoryview, span: _Span, number: int) -> Iterator[_Span]:
    """Where each message, or text, under that number begins and ends."""
    for found, wire, begin, end in fields(view, *span):
        if found == number and wire == _LENGTH:
            yield begin, end


def _number(view: memoryview, span: _Span, number: int) -> int:
    """The last one under that number, as protobuf wants; 0 where there is none."""
    last = 0
    for found, wire, value, _ in fields(view, *span):
        if found == number and wire == _VARINT:
            last = value
    return last


def _text(view: memoryview, span: _Span, number: int) -> str:
    text = ""
    for begin, end in _parts(view, span, number):
        text = bytes(view[begin : min(end, begin + LONGEST_NAME)]).decode(errors="replace")
    return text


def _tensor(view: memoryview, span: _Span) -> TensorType:
    element, dimensions = 0, []
    for kind in _parts(view, span, 2):
        for tensor in _parts(view, kind, 1):
            element = _number(view, tensor, 1)
            for shape in _parts(view, tensor, 2):
                dimensions = [
                    _number(view, dimension, 1) or _text(view, dimension, 2)
                    for dimension in islice(_parts(view, shape, 1), MOST_DIMENSIONS)
                ]
    return TensorType(
        _text(view, span, 1), _ELEMENTS.get(element, f"element type {element}"), tuple(dimensions)
    )
