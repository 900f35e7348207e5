"""Activation functions of RLlib's networks, by the names that RLlib takes them under.

None of them overflows, however large its argument. Facts: ``get_activation_fn`` and ``torch.nn`` of Ray 2.60.0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ospbridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

__all__ = ["ACTIVATIONS", "Activation", "activation"]

Activation: TypeAlias = "Callable[[NDArray[np.float32]], None]"
"""Changes a float32 array of any shape in place."""

_erf: Final[Callable[[Any], Any]] = np.frompyfunc(math.erf, 1, 1)


def _tanh(x: NDArray[np.float32]) -> None:
    np.tanh(x, x)


def _relu(x: NDArray[np.float32]) -> None:
    np.maximum(x, 0.0, out=x)


def _silu(x: NDArray[np.float32]) -> None:
    half = x * np.float32(0.5)
    # x * sigmoid(x), by tanh: exp(-x) would overflow.
    np.tanh(half, x)
    x += 1.0
    x *= half


def _elu(x: NDArray[np.float32]) -> None:
    below = np.expm1(np.minimum(x, 0.0))
    np.maximum(x, 0.0, out=x)
    x += below


def _gelu(x: NDArray[np.float32]) -> None:
    x *= 0.5 * (1.0 + _erf(x * math.sqrt(0.5)).astype(np.float32))


ACTIVATIONS: Final[dict[str, Activation | None]] = {
    "tanh": _tanh,
    "relu": _relu,
    "silu": _silu,
    "swish": _silu,
    "elu": _elu,
    "gelu": _gelu,
    "linear": None,
}
"""By name, in small letters. ``linear`` is none at all."""


def activation(name: str) -> Activation | None:
    """The function of that name, upper and lower case alike (``SiLU``). Raises ConfigurationError."""
    try:
        return ACTIVATIONS[name.lower()]
    except KeyError:
        raise ConfigurationError(
            f"there is no activation {name!r} here",
            hint=f"one of {', '.join(ACTIVATIONS)}; for any other, export the policy as an ONNX file",
        ) from None
