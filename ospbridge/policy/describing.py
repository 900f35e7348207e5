"""What can be told of a policy by looking at its weights, or at its ONNX model; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.policy.architecture import read_architecture
from ospbridge.policy.onnx_signature import Signature, read_signature

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Description", "describe"]

_MOST_ARRAYS: Final = 200
_LONGEST_NAME: Final = 120
_LIMITING: Final = frozenset({"Clip", "Concat", "Max", "Min", "Split"})
"""Operators with which RLlib's exports limit the deviations of a Gaussian; choices need none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """None: it does not say. ``trouble``: why no agent here can act from it."""

    kind: str
    """``onnx`` or ``rlmodule``."""
    size: int
    """Bytes of the arrays, or of the model."""
    observation: int | None = None
    """Numbers of an observation."""
    outputs: int | None = None
    """Numbers that an action is drawn from."""
    actions: tuple[str, ...] = ()
    """Which action spaces these outputs can stand for."""
    layers: tuple[int, ...] | None = None
    """Outputs of each dense layer of a module, the encoder's first."""
    arrays: tuple[tuple[str, tuple[int, ...]], ...] | None = None
    """Names and shapes, of a module; a few hundred at most."""
    onnx: Signature | None = None
    trouble: str = ""


def describe(policy: Mapping[str, NDArray[np.float32]] | bytes) -> Description:
    """The weights of an RLModule by their keys, or an ONNX model."""
    return _described_model(policy) if isinstance(policy, bytes) else _described_module(policy)


def _described_module(arrays: Mapping[str, NDArray[np.float32]]) -> Description:
    size = sum(array.nbytes for array in arrays.values())
    shapes = tuple((name[:_LONGEST_NAME], array.shape) for name, array in list(arrays.items())[:_MOST_ARRAYS])
    try:
        found = read_architecture(arrays)
    except ConfigurationError as error:
        return Description(kind="rlmodule", size=size, arrays=shapes, trouble=error.message)
    outputs = found.outputs
    actions = [f"one of {outputs} choices"] * (not found.free_log_std)
    if outputs % 2 == 0:
        actions.append(_box(outputs))
    return Description(
        kind="rlmodule",
        size=size,
        observation=found.inputs,
        outputs=outputs,
        actions=tuple(actions),
        layers=tuple(layer.outputs for layer in (*found.encoder, *found.head)),
        arrays=shapes,
    )


def _described_model(model: bytes) -> Description:
    try:
        found = read_signature(model)
    except ConfigurationError as error:
        return Description(kind="onnx", size=len(model), trouble=error.message)
    observation, outputs = (
        _width(tensors[0].shape) if tensors else None for tensors in (found.inputs, found.outputs)
    )
    actions: tuple[str, ...] = ()
    if outputs is not None:
        gaussian = outputs % 2 == 0 and not _LIMITING.isdisjoint(found.operators)
        actions = (_box(outputs) if gaussian else f"one of {outputs} choices",)
    return Description(
        kind="onnx",
        size=len(model),
        observation=observation,
        outputs=outputs,
        actions=actions,
        onnx=found,
        trouble="" if found.inputs and found.outputs else "the model has no input or no output",
    )


def _width(shape: tuple[int | str, ...]) -> int | None:
    return shape[1] if len(shape) == 2 and isinstance(shape[1], int) else None


def _box(outputs: int) -> str:
    """Each number is drawn from a mean and a deviation."""
    return f"a box of {outputs // 2} number{'s' * (outputs > 2)}"
