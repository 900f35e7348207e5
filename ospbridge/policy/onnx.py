"""ONNX models: a look before a runtime sees them, what they say of themselves, and as modules (extra ``onnx``).

A model is a protobuf message. Only what leads to tensors is read: graph, functions, nodes, attributes. Refused are
tensors whose data is in another file (the runtime would open it), and graphs within nodes, which loops and branches
have (a loop may never end). Refused as well is what protobuf's own readers may take for something else than this one.

The first input takes observations, the first output gives the numbers of a distribution, whatever they are called.
RLlib 2.47 exports its models for a batch of exactly one row: more rows go through one by one. A Gaussian's limits are
within the model.

Facts: ``onnx.proto3`` of ONNX 1.19, protobuf's encoding; models of Ray 2.47.1; ONNX Runtime 1.31.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from time import thread_time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

__all__ = [
    "LARGEST",
    "MOST_WORK",
    "OnnxModule",
    "Signature",
    "TensorType",
    "check_model",
    "fields",
    "read_signature",
]

LARGEST: Final = 256 * 1024 * 1024
"""Bytes of a model."""
MOST_FIELDS: Final = 100_000
"""That a model may consist of, tensors' numbers not counted: policies have some hundreds. More would take long to look
through, and whoever waits for that does nothing else meanwhile."""
MOST_WORK: Final = 1_000_000_000
"""Multiplications for one decision: as many as operations, times the numbers of the largest tensor. Of a policy with
two layers of 2048 there are some 60 million."""
WORK_A_SECOND: Final = 4_000_000_000
"""What one core does of it, to judge a model by the time that it took."""
FLOAT_SIZE: Final = 4
TOO_MUCH: Final = "where the server is trusted, raise the limit with --rllink-most-work of the daemon"
LARGEST_KEY: Final = 2**32 - 1
"""Of a field: protobuf's readers leave out what is beyond, and so would see another field."""

_VARINT, _LENGTH = 0, 2
_LARGEST_VARINT: Final = 2**64 - 1
_FIXED: Final = {1: 8, 5: 4}

_GRAPH, _FUNCTION = 7, 25
_TENSOR: Final = "tensor"
_SPARSE: Final = "sparse"
_WITHIN: Final[dict[str, dict[int, str]]] = {
    "model": {_GRAPH: "graph", _FUNCTION: "function"},
    "graph": {1: "node", 5: _TENSOR, 15: _SPARSE},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: _TENSOR, 10: _TENSOR, 22: _SPARSE, 23: _SPARSE, 6: "subgraph", 11: "subgraph"},
}
"""Which fields of a message lead on, and to what."""
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
MOST_TENSORS: Final = 32
MOST_OPERATORS: Final = 64
MOST_DIMENSIONS: Final = 16
LONGEST_NAME: Final = 80
_VARINT, _LENGTH = 0, 2
_ELEMENTS: Final = {1: "float32", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "float64"}
_Span = tuple[int, int]
_ERRORS_ONLY: Final = 3
_FLOATS: Final = "tensor(float)"


def check_model(data: bytes, *, most_work: int = MOST_WORK) -> None:
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
    if look.nodes * look.largest > most_work:
        raise ConfigurationError(
            f"the ONNX model has {pluralize(look.nodes, 'operation')}, and {look.largest} numbers in its largest "
            f"tensor: a decision may take {look.nodes * look.largest} multiplications, more than {most_work}",
            hint=TOO_MUCH,
        )


class _Look:
    """At one model."""

    def __init__(self, view: memoryview) -> None:
        self.graphs = 0
        """Of the model itself."""
        self.nodes = 0
        self.largest = 0
        """Numbers of the largest tensor, by the bytes that are there for it."""
        self._view = view
        self._fields = 0

    def into(self, begin: int, end: int, kind: str) -> None:
        """Raises ConfigurationError, and ValueError or IndexError for what is no such message."""
        if kind == _SPARSE:
            raise ConfigurationError(
                "the ONNX model has a sparse tensor, of which a few bytes may stand for any number of zeros",
                hint="export the policy with dense weights",
            )
        self.nodes += kind == "node"
        if kind == _TENSOR:
            self.largest = max(self.largest, (end - begin) // FLOAT_SIZE)
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


class OnnxModule:
    """``inputs`` numbers of an observation to ``outputs`` numbers of a distribution. Not for several threads.

    Raises ConfigurationError for a model that cannot be run, does not fit, or may take more than ``most_work``.
    """

    def __init__(self, model: bytes, *, inputs: int, outputs: int, most_work: int = MOST_WORK) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise ConfigurationError(
                f"an ONNX policy needs ONNX Runtime, which cannot be imported: {error}",
                hint="pip install 'ospbridge[onnx]'",
            ) from None
        check_model(model, most_work=most_work)
        options = onnxruntime.SessionOptions()
        # A policy's networks are small: what a second thread saves, it costs to wake it.
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = _ERRORS_ONLY
        # Not what its bytes look like: the runtime's own format has not been checked.
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  # the runtime's errors have no base of their own
            raise ConfigurationError(
                f"ONNX Runtime cannot load the model: {_told(error)}",
                hint="export it with the operators of ONNX alone, in an opset that this runtime knows",
            ) from None
        taken, given = session.get_inputs(), session.get_outputs()
        if not taken or not given:
            raise ConfigurationError(
                f"the ONNX model has {pluralize(len(taken), 'input')} and "
                f"{pluralize(len(given), 'output')}, expected one of each",
                hint="export it with an input for observations and an output for the distribution",
            )
        shape = taken[0].shape
        if taken[0].type != _FLOATS or len(shape) != 2 or _size(shape[0]) not in (0, 1):
            raise ConfigurationError(
                f"input {taken[0].name!r} of the ONNX model is {taken[0].type}{shape}, "
                f"expected {_FLOATS}[1 or any, {inputs}]",
                hint="export it for a batch of one row, or of any number of rows",
            )
        if _size(shape[1]) not in (0, inputs):
            raise ConfigurationError(
                f"input {taken[0].name!r} of the ONNX model has shape {shape}, expected [..., {inputs}]: "
                f"the agent's observation has {pluralize(inputs, 'number')}",
                hint="give the server the observation space of this agent",
            )
        self._run: Any = session.run
        self._input: str = taken[0].name
        self._output = [given[0].name]
        self._try(inputs, outputs, [each.name for each in taken])
        began = thread_time()
        self._run(self._output, {self._input: np.zeros((1, inputs), np.float32)})
        seconds = thread_time() - began
        if seconds * WORK_A_SECOND > most_work:
            # Tensors that a model makes as it runs are not to be seen before.
            raise ConfigurationError(
                f"the ONNX model takes {seconds:.2g} s of a core for a decision, more than "
                f"{most_work / WORK_A_SECOND:.2g} s",
                hint=TOO_MUCH,
            )
        self._outputs = outputs
        self._one_by_one = _size(shape[0]) == 1 or not self._takes_two(inputs, outputs)

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs], an array of the caller's own."""
        if not self._one_by_one:
            return self._infer(observations)
        rows = np.empty((len(observations), self._outputs), np.float32)
        for at in range(len(observations)):
            rows[at] = self._infer(observations[at : at + 1])[0]
        return rows

    def forward_row(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[inputs] to float32[outputs]."""
        row: NDArray[np.float32] = self._infer(observation[None])[0]
        return row

    def _infer(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs]; B is 1 where rows go one by one."""
        result: NDArray[np.float32] = self._run(self._output, {self._input: observations})[0]
        return result

    def _try(self, inputs: int, outputs: int, names: list[str]) -> None:
        """Raises ConfigurationError where zeros do not give the numbers that are wanted."""
        try:
            result = self._infer(np.zeros((1, inputs), np.float32))
        except Exception as error:  # noqa: BLE001  # the runtime's errors have no base of their own
            raise ConfigurationError(
                f"ONNX Runtime cannot run the model, of whose inputs {names} the first is fed: {_told(error)}",
                hint="export a policy that takes observations alone, without a state that is carried on",
            ) from None
        shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
        if shape != (1, outputs) or dtype != np.float32:
            raise ConfigurationError(
                f"output {self._output[0]!r} of the ONNX model is {dtype}{shape}, expected float32{(1, outputs)}: "
                f"the agent's action is drawn from {pluralize(outputs, 'number')}",
                hint="give the server the action space of this agent; the first output is taken",
            )
        if not np.isfinite(result).all():
            raise ConfigurationError(
                f"output {self._output[0]!r} of the ONNX model is {result[0].tolist()} for an observation of zeros",
                hint="the learner has diverged: look at its loss, and at the rewards it was given",
            )

    def _takes_two(self, inputs: int, outputs: int) -> bool:
        """Whether a model that calls its batch open can be run with another than it was exported with."""
        try:
            return self._infer(np.zeros((2, inputs), np.float32)).shape == (2, outputs)
        except Exception:  # noqa: BLE001  # the runtime's errors have no base of their own
            return False


def _size(dimension: object) -> int:
    """How many; 0 where any number will do."""
    return dimension if isinstance(dimension, int) else 0


def _told(error: Exception) -> str:
    return f"{error}".strip().split("\n", maxsplit=1)[0][:300]
