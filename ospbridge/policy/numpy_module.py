"""RLlib's PPO modules in plain numpy: observations in, the numbers of a distribution out.

What the weights do not say is given: the activations. Layer normalisation uses RLlib's epsilon. The logarithms of the
standard deviations of a Gaussian are limited as the module itself limits them.

Facts: PPO's RLModules of Ray 2.60.0, compared by ``tests/peers/compare_policy.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.policy.activations import activation
from ospbridge.policy.architecture import CLIP, LOG_STD, read_architecture, require_shape
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ospbridge.policy.activations import Activation
    from ospbridge.policy.architecture import Architecture, Layer

__all__ = ["NumpyModule"]

_EPSILON: Final = 1e-3
_DEFAULT_CLIP: Final = 20.0


class NumpyModule:
    """``inputs`` numbers of an observation to ``outputs`` numbers of a distribution.

    ``gaussian`` says that these are means, then logarithms of standard deviations. ``activation`` is the encoder's
    (RLlib's ``fcnet_activation``), ``head_activation`` the head's (``head_fcnet_activation``). Not for several threads.
    """

    def __init__(
        self,
        weights: Mapping[str, NDArray[Any]],
        *,
        inputs: int,
        outputs: int,
        gaussian: bool,
        activation: str = "tanh",
        head_activation: str = "relu",
    ) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._gaussian = gaussian
        self._activations = (activation, head_activation)
        self._network = self._made(weights)

    def load(self, weights: Mapping[str, NDArray[Any]]) -> None:
        """Act from ``weights`` (arrays of floating numbers by RLlib's keys) from now on.

        The sizes and the number of hidden layers may change. Raises ConfigurationError, which names the key, for
        weights that are missing, do not fit or are not finite; those before stay in force then.
        """
        self._network = self._made(weights)

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs], an array of the caller's own."""
        return self._network.forward(observations)

    def forward_row(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[inputs] to float32[outputs], an array that the next call overwrites."""
        return self._network.forward_row(observation)

    def _made(self, weights: Mapping[str, NDArray[Any]]) -> _Network:
        architecture = read_architecture(weights)
        self._check_widths(architecture, weights)
        functions: list[Activation | None] = []
        for layers, name, option in (
            (architecture.encoder, self._activations[0], "activation"),
            (architecture.head[:-1], self._activations[1], "head_activation"),
        ):
            function = activation(name)
            for layer in layers:
                _check_activation(layer, option, name, function)
            functions += [function] * len(layers)
        functions.append(None)
        blocks = [
            _Block(weights, layer, function)
            for layer, function in zip((*architecture.encoder, *architecture.head), functions, strict=True)
        ]
        free = _finite(weights, LOG_STD) if architecture.free_log_std else None
        clip = _clip(weights) if self._gaussian else None
        return _Network(blocks, free, clip)

    def _check_widths(self, architecture: Architecture, weights: Mapping[str, NDArray[Any]]) -> None:
        if architecture.free_log_std and not self._gaussian:
            raise ConfigurationError(
                f"{LOG_STD!r} belongs to continuous actions, this agent's are discrete",
                hint="give the server the action space of this agent",
            )
        first, last = architecture.encoder[0].weight, architecture.head[-1].weight
        if architecture.inputs != self._inputs:
            raise ConfigurationError(
                f"{first!r} has shape {weights[first].shape}, expected ({len(weights[first])}, {self._inputs}): "
                f"the agent's observation has {pluralize(self._inputs, 'number')}",
                hint="give the server the observation space of this agent",
            )
        if architecture.outputs != self._outputs:
            wanted = self._outputs // 2 if architecture.free_log_std else self._outputs
            raise ConfigurationError(
                f"{last!r} has shape {weights[last].shape}, expected ({wanted}, {weights[last].shape[1]}): "
                f"the agent's action is drawn from {pluralize(self._outputs, 'number')}",
                hint="give the server the action space of this agent",
            )


class _Block:
    """One dense layer with what follows it. The bias is one more column, for an input that is always 1."""

    def __init__(
        self, weights: Mapping[str, NDArray[Any]], layer: Layer, function: Activation | None
    ) -> None:
        self.matrix = np.empty((layer.outputs, layer.inputs + 1), np.float32)
        """float32[outputs, inputs + 1]"""
        self.matrix[:, :-1] = _finite(weights, layer.weight)
        self.matrix[:, -1] = _finite(weights, layer.bias)
        self.function = function
        self.norm: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if layer.norm_weight:
            self.norm = (_finite(weights, layer.norm_weight), _finite(weights, layer.norm_bias))

    def finish(self, x: NDArray[np.float32]) -> None:
        """Normalise and activate float32[..., outputs] in place."""
        if self.norm is not None:
            weight, bias = self.norm
            x -= x.mean(-1, keepdims=True)
            x /= np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(_EPSILON))
            x *= weight
            x += bias
        if self.function is not None:
            self.function(x)


class _Network:
    """Weights that have been checked, and the arrays that one row goes through."""

    def __init__(self, blocks: list[_Block], free: NDArray[np.float32] | None, clip: float | None) -> None:
        self._blocks = blocks
        self._free = free if free is None or clip is None else np.clip(free, -clip, clip)
        self._half = len(blocks[-1].matrix) if free is not None else len(blocks[-1].matrix) // 2
        self._bounds: tuple[NDArray[np.float32], NDArray[np.float32]] | None = None
        if clip is not None and free is None:
            high = np.full(self._half, clip, np.float32)
            self._bounds = (-high, high)
        self._row = np.empty(len(blocks[-1].matrix) * (1 if free is None else 2), np.float32)
        # What each layer takes: the numbers of the one before, and the 1 that its bias is for.
        taken = [np.ones(block.matrix.shape[1], np.float32) for block in blocks]
        given = [*(array[:-1] for array in taken[1:]), self._row[: len(blocks[-1].matrix)]]
        self._observation = taken[0][:-1]
        self._steps = [
            (block.matrix, before, after, block.function if block.norm is None else block.finish)
            for block, before, after in zip(blocks, taken, given, strict=True)
        ]
        self._log_std = self._row[self._half :]
        if self._free is not None:
            self._log_std[:] = self._free

    def forward_row(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        self._observation[:] = observation
        for matrix, before, after, finish in self._steps:
            np.dot(matrix, before, after)
            if finish is not None:
                finish(after)
        if self._bounds is not None:
            self._limit(self._log_std, *self._bounds)
        return self._row

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        x = observations
        for block in self._blocks:
            x = x @ block.matrix[:, :-1].T
            x += block.matrix[:, -1]
            block.finish(x)
        if self._free is not None:
            return np.concatenate([x, np.broadcast_to(self._free, x.shape)], axis=1)
        if self._bounds is not None:
            self._limit(x[:, self._half :], *self._bounds)
        return x

    @staticmethod
    def _limit(log_std: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
        np.maximum(log_std, low, out=log_std)
        np.minimum(log_std, high, out=log_std)


def _finite(weights: Mapping[str, NDArray[Any]], key: str) -> NDArray[np.float32]:
    """The array at ``key`` as float32, of the caller's own. Raises ConfigurationError."""
    array = weights[key]
    if array.dtype.kind != "f":
        raise ConfigurationError(
            f"{key!r} is of {array.dtype}, expected float32",
            hint="the weights of an RLModule are floating numbers",
        )
    with np.errstate(over="ignore"):
        mine = array.astype(np.float32)
    bad = mine.size - int(np.isfinite(mine).sum())
    if bad:
        raise ConfigurationError(
            f"{bad} of {mine.size} numbers of {key!r} are NaN or infinite",
            hint="the learner has diverged: look at its loss, and at the rewards it was given",
        )
    return mine


def _clip(weights: Mapping[str, NDArray[Any]]) -> float | None:
    """How far the logarithms of standard deviations may go from 0; None: any way."""
    if CLIP not in weights:
        return _DEFAULT_CLIP
    require_shape(weights, CLIP, (1,))
    clip = float(weights[CLIP][0])
    if not clip >= 0:
        raise ConfigurationError(
            f"{CLIP!r} is {clip}, expected a number of 0 or more",
            hint="RLlib's own is 20, and infinity for no limit",
        )
    return None if clip == float("inf") else clip


def _check_activation(layer: Layer, option: str, name: str, function: Activation | None) -> None:
    """Raises ConfigurationError where the keys show that ``name`` cannot be the activation of ``layer``."""
    if layer.activated is not None and layer.activated != (function is not None):
        seen, other = ("an", "the one of the server") if layer.activated else ("no", "linear")
        raise ConfigurationError(
            f"there is {seen} activation behind {layer.weight!r}, but {option} is {name!r}",
            hint=f"set {option} to {other}: "
            + ("fcnet_activation" if option == "activation" else "head_fcnet_activation")
            + " in RLlib's model config",
        )
