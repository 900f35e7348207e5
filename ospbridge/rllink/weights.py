"""What SET_STATE carries: a policy, as a model file or as the arrays of its layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MlirWeights", "ModuleWeights", "OnnxWeights", "Weights"]


@dataclass(frozen=True, slots=True)
class OnnxWeights:
    """An ONNX file, as Ray 2.47 and 2.48 send it. ``seq_no`` counts the updates of the policy."""

    model: bytes
    seq_no: int


@dataclass(frozen=True, slots=True)
class MlirWeights:
    """An MLIR file: named by a published text, sent by no server known."""

    model: bytes
    seq_no: int


@dataclass(frozen=True, slots=True, eq=False)
class ModuleWeights:
    """The state of an RLModule, as Ray 2.49 and later send it: float32 arrays of any shape by their torch names."""

    arrays: dict[str, NDArray[np.float32]]
    seq_no: int


Weights: TypeAlias = OnnxWeights | ModuleWeights | MlirWeights
