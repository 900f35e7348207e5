"""What can be told of a policy by looking at its weights, or at its ONNX model; nothing is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.policy.onnx import Signature, read_signature
from ospbridge.policy.rlmodule import LOG_STD, read_architecture, read_widths
from ospbridge.text import pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LONGEST_TOLD", "Description", "box_of", "describe", "one_of"]

_MOST_ARRAYS: Final = 200
_LONGEST_NAME: Final = 120
LONGEST_TOLD: Final = 500
"""Bytes of a trouble: names that are in it are the server's choice."""
_JOINING: Final = "Concat"
"""The operator that ends RLlib's exports of a Gaussian where they limit its deviations, or have them free: it puts them
behind the means. Those that do neither end as choices do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """None: it does not say. ``trouble``: why no agent here can act from it; its widths may be known all the same."""

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
        observation, outputs = read_widths(arrays)
        return Description(
            kind="rlmodule",
            size=size,
            observation=observation,
            outputs=outputs,
            actions=_actions(outputs, free_log_std=LOG_STD in arrays),
            arrays=shapes,
            trouble=printable(error.message, LONGEST_TOLD),
        )
    return Description(
        kind="rlmodule",
        size=size,
        observation=found.inputs,
        outputs=found.outputs,
        actions=_actions(found.outputs, free_log_std=found.free_log_std),
        layers=tuple(layer.outputs for layer in (*found.encoder, *found.head)),
        arrays=shapes,
    )


def _described_model(model: bytes) -> Description:
    try:
        found = read_signature(model)
    except ConfigurationError as error:
        return Description(kind="onnx", size=len(model), trouble=printable(error.message, LONGEST_TOLD))
    observation, outputs = (
        _width(tensors[0].shape) if tensors else None for tensors in (found.inputs, found.outputs)
    )
    actions: tuple[str, ...] = ()
    if outputs is not None:
        actions = _actions(outputs, free_log_std=False)
        if outputs % 2 == 0 and found.last == _JOINING:
            actions = (box_of(outputs // 2),)
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


def _actions(outputs: int | None, *, free_log_std: bool) -> tuple[str, ...]:
    """What a module's outputs can stand for."""
    if outputs is None:
        return ()
    box = (box_of(outputs // 2),) * (outputs % 2 == 0)
    return box if free_log_std else (one_of(outputs), *box)


def one_of(choices: int) -> str:
    """An action space in words, as ``Description.actions`` has it."""
    return f"one of {pluralize(choices, 'choice')}"


def box_of(numbers: int) -> str:
    """As ``one_of``; each number is drawn from a mean and a deviation."""
    return f"a box of {pluralize(numbers, 'number')}"
