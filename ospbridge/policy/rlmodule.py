"""RLlib's PPO modules in plain numpy: observations in, the numbers of a distribution out.

The architecture is read from the names and shapes of the weights. What acts is an encoder and a head, each a chain of
dense layers: ``encoder.encoder.net.mlp.N.weight`` (or ``encoder.actor_encoder``, where the value function has an
encoder of its own) and ``pi.net.mlp.N.weight``. N counts the places of a ``torch.nn.Sequential``: activations take one
each and have no weights, so whether there is one shows between two dense layers, which one it is never. A layer
normalization has a weight of one dimension.

Facts: PPO's RLModules, ``get_activation_fn`` and ``torch.nn`` of Ray 2.47.1 and 2.60.0, compared by
``tests/peers/compare_policy.py``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ospbridge.errors import ConfigurationError
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

__all__ = [
    "ACTIVATIONS",
    "LOG_STD",
    "NumpyModule",
    "named_activation",
    "read_architecture",
    "read_widths",
    "same_activation",
]

Activation: TypeAlias = "Callable[[NDArray[np.float32]], None]"
"""Changes a float32 array of any shape in place."""

_erf: Final[Callable[[Any], Any]] = np.frompyfunc(math.erf, 1, 1)
LOG_STD: Final = "pi.log_std"
CLIP: Final = "pi.log_std_clip_param_const"
_HEAD: Final = "pi."
_ENCODERS: Final = ("encoder.actor_encoder.", "encoder.encoder.")
_OTHER_ENCODERS: Final = ("encoder.", "pi_encoder.")
"""Of DQN, and of SAC and CQL: nobody here acts from these."""
_FIRST: Final = ("net.mlp.0.weight", "tokenizer.net.mlp.0.weight")
"""Where observations come in: below the encoder, or before an LSTM."""
_PLACE: Final = re.compile(r"net\.mlp\.(\d{1,4})\.(weight|bias)")
_SUPPORTED: Final = (
    "supported are RLlib's own PPO modules without LSTM and CNN (fcnet_hiddens, head_fcnet_hiddens, layer norm, "
    "vf_share_layers, free_log_std); for any other, export the policy as an ONNX file or, while RLlib trains it, let "
    "RLlib's own env runners attach, or your own programs act"
)
_MEMORIES: Final = frozenset({"lstm", "gru", "tokenizer"})
_FORGETFUL: Final = (
    "nothing here carries what it remembers from step to step, and no ONNX file would change that: train a policy "
    "without memory (use_lstm=False)"
)
_WHOLE_STATE: Final = "the whole state of the RLModule is needed"
_ELSEWHERE: Final = {
    "lstm": "an LSTM",
    "gru": "a GRU",
    "cnn": "a CNN",
    "tokenizer": "the tokenizer of an LSTM",
}
_EPSILON: Final = 1e-3
_DEFAULT_CLIP: Final = 20.0


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


def same_activation(one: str, other: str) -> bool:
    """Whether two names are of one function: ``SiLU`` is ``swish``."""
    one, other = one.lower(), other.lower()
    return one == other or (
        one in ACTIVATIONS and other in ACTIVATIONS and ACTIVATIONS[one] is ACTIVATIONS[other]
    )


def named_activation(name: str) -> Activation | None:
    """The function of that name, upper and lower case alike (``SiLU``). Raises ConfigurationError."""
    try:
        return ACTIVATIONS[name.lower()]
    except KeyError:
        raise ConfigurationError(
            f"there is no activation {name!r} here",
            hint=f"one of {', '.join(ACTIVATIONS)}; for any other, export the policy as an ONNX file",
        ) from None


@dataclass(frozen=True, slots=True)
class Layer:
    """A dense layer, and the layer normalisation behind it if there is one."""

    weight: str
    """Key of float32[outputs, inputs]."""
    bias: str
    """Key of float32[outputs]."""
    inputs: int
    outputs: int
    norm_weight: str = ""
    """Key of float32[outputs]; empty where there is no normalisation."""
    norm_bias: str = ""
    activated: bool | None = None
    """Whether a place for an activation follows; None where the keys cannot tell."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """Layers of the encoder, each with its activation, and of the head, whose last one has none."""

    encoder: tuple[Layer, ...]
    head: tuple[Layer, ...]
    free_log_std: bool
    """Whether the logarithms of the standard deviations are weights, not outputs of the head."""

    @property
    def inputs(self) -> int:
        return self.encoder[0].inputs

    @property
    def outputs(self) -> int:
        """Numbers that the distribution is made from."""
        return self.head[-1].outputs * (2 if self.free_log_std else 1)


def read_architecture(weights: Mapping[str, NDArray[Any]]) -> Architecture:
    """The architecture of ``weights``; what is not on the way from observation to action is left aside.

    Raises ConfigurationError, which names the key, for what is missing, does not fit, or is no part of such a module.
    """
    prefix = next((each for each in _ENCODERS if any(key.startswith(each) for key in weights)), None)
    if prefix is None:
        shown = ", ".join(sorted(weights)[:4]) or "none"
        raise ConfigurationError(
            f"the weights have no key that begins with {' or '.join(_ENCODERS)}; their keys are {shown}"
            + (", ..." if len(weights) > 4 else ""),
            hint=_SUPPORTED,
        )
    encoder = _chain(weights, prefix, None)
    head = _chain(weights, _HEAD, encoder[-1].outputs)
    free = LOG_STD in weights
    if free:
        require_shape(weights, LOG_STD, (head[-1].outputs,))
    return Architecture(encoder, head, free)


def read_widths(weights: Mapping[str, NDArray[Any]]) -> tuple[int | None, int | None]:
    """How many numbers a module takes and puts out, whatever is between; None where its weights do not plainly tell.

    Nobody can act from such a module on the strength of that, but experience can be told to be none of its own.
    """
    taken = [
        weights[key].shape[1]
        for encoder in (*_ENCODERS, *_OTHER_ENCODERS)
        for key in (encoder + first for first in _FIRST)
        if key in weights and weights[key].ndim == 2
    ]
    heads = {
        int(place[1]): key
        for key in weights
        if key.startswith(_HEAD) and (place := _PLACE.fullmatch(key, len(_HEAD))) and place[2] == "weight"
    }
    last = weights[heads[max(heads)]] if heads else None
    put_out = None
    if last is not None and last.ndim == 2:
        put_out = last.shape[0] * (2 if LOG_STD in weights else 1)
    return (taken[0] if len(set(taken)) == 1 else None), put_out


def require_shape(weights: Mapping[str, NDArray[Any]], key: str, shape: tuple[int, ...]) -> None:
    """Raises ConfigurationError where ``key`` is missing or has another shape."""
    if key not in weights:
        raise ConfigurationError(
            f"the weights lack the key {key!r}, expected with shape {shape}",
            hint=_WHOLE_STATE,
        )
    if weights[key].shape != shape:
        raise ConfigurationError(
            f"{key!r} has shape {weights[key].shape}, expected {shape}",
            hint="all weights must come from one RLModule",
        )


def _chain(weights: Mapping[str, NDArray[Any]], prefix: str, inputs: int | None) -> tuple[Layer, ...]:
    """The layers below ``prefix``. The first one takes ``inputs`` numbers; None: any."""
    layers: list[Layer] = []
    last = -1
    for place in _places(weights, prefix):
        key = f"{prefix}net.mlp.{place}."
        if layers and key + "weight" in weights and weights[key + "weight"].ndim == 1:
            layers[-1] = _normalised(weights, layers[-1], key, place - last)
        else:
            if place - last > (2 if layers else 1):
                raise ConfigurationError(
                    f"something without weights stands before {key + 'weight'!r}, expected an activation at most",
                    hint=_SUPPORTED,
                )
            if layers:
                layers[-1] = replace(layers[-1], activated=place - last == 2)
            layers.append(_dense(weights, key, layers[-1].outputs if layers else inputs))
        last = place
    return tuple(layers)


def _places(weights: Mapping[str, NDArray[Any]], prefix: str) -> list[int]:
    """Where the layers with weights stand below ``prefix``, in order."""
    places = set()
    for key in weights:
        if not key.startswith(prefix):
            continue
        if not isinstance(weights[key], np.ndarray):
            raise ConfigurationError(
                f"{key!r} is of type {type(weights[key]).__name__}, expected an array", hint=_WHOLE_STATE
            )
        if key in (LOG_STD, CLIP):
            continue
        match = _PLACE.fullmatch(key, len(prefix))
        if match is None:
            parts = re.split(r"[._]", key)
            what = next((said for part, said in _ELSEWHERE.items() if part in parts), "no dense layer")
            hint = _SUPPORTED if _MEMORIES.isdisjoint(parts) else _FORGETFUL
            raise ConfigurationError(f"the key {key!r} belongs to {what}", hint=hint)
        places.add(int(match[1]))
    if not places:
        raise ConfigurationError(
            f"the weights lack the keys {prefix}net.mlp.N.weight and .bias", hint=_WHOLE_STATE
        )
    return sorted(places)


def _dense(weights: Mapping[str, NDArray[Any]], key: str, inputs: int | None) -> Layer:
    weight, bias = key + "weight", key + "bias"
    if weight not in weights:
        raise ConfigurationError(f"the weights lack the key {weight!r}", hint=_WHOLE_STATE)
    shape = weights[weight].shape
    if len(shape) != 2 or 0 in shape or inputs not in (None, shape[1]):
        raise ConfigurationError(
            f"{weight!r} has shape {shape}, expected (outputs, {'inputs' if inputs is None else inputs})",
            hint="all weights must come from one RLModule, of dense layers",
        )
    require_shape(weights, bias, shape[:1])
    return Layer(weight, bias, inputs=shape[1], outputs=shape[0])


def _normalised(weights: Mapping[str, NDArray[Any]], layer: Layer, key: str, gap: int) -> Layer:
    """``layer`` with the normalisation at ``key`` behind it."""
    weight, bias = key + "weight", key + "bias"
    if gap != 1 or layer.norm_weight:
        raise ConfigurationError(
            f"the layer normalisation {weight!r} does not stand right behind a dense layer", hint=_SUPPORTED
        )
    require_shape(weights, weight, (layer.outputs,))
    require_shape(weights, bias, (layer.outputs,))
    return replace(layer, norm_weight=weight, norm_bias=bias)


class NumpyModule:
    """``inputs`` numbers of an observation to ``outputs`` numbers of a distribution.

    ``gaussian`` says that these are means, then logarithms of standard deviations. ``activation`` is the encoder's
    (RLlib's ``fcnet_activation``), ``head_activation`` the head's (``head_fcnet_activation``). Raises
    ConfigurationError, which names the key, for weights that are missing, do not fit or are not finite. Not for several
    threads.
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
        architecture = read_architecture(weights)
        _check_widths(architecture, weights, inputs, outputs, gaussian=gaussian)
        functions: list[Activation | None] = []
        for layers, name, option in (
            (architecture.encoder, activation, "activation"),
            (architecture.head[:-1], head_activation, "head_activation"),
        ):
            function = named_activation(name)
            for layer in layers:
                _check_activation(layer, option, name, function)
            functions += [function] * len(layers)
        functions.append(None)
        blocks = [
            _Block(weights, layer, function)
            for layer, function in zip((*architecture.encoder, *architecture.head), functions, strict=True)
        ]
        free = _finite(weights, LOG_STD) if architecture.free_log_std else None
        clip = _clip(weights) if gaussian else None
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
        """float32[inputs] to float32[outputs], an array that the next call overwrites."""
        self._observation[:] = observation
        for matrix, before, after, finish in self._steps:
            np.dot(matrix, before, after)
            if finish is not None:
                finish(after)
        if self._bounds is not None:
            self._limit(self._log_std, *self._bounds)
        return self._row

    def forward(self, observations: NDArray[np.float32]) -> NDArray[np.float32]:
        """float32[B, inputs] to float32[B, outputs], an array of the caller's own."""
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


def _check_widths(
    architecture: Architecture,
    weights: Mapping[str, NDArray[Any]],
    inputs: int,
    outputs: int,
    *,
    gaussian: bool,
) -> None:
    """Raises ConfigurationError where the module is for other observations or actions."""
    if architecture.free_log_std and not gaussian:
        raise ConfigurationError(
            f"{LOG_STD!r} belongs to continuous actions, this agent's are discrete",
            hint="give the server the action space of this agent",
        )
    first, last = architecture.encoder[0].weight, architecture.head[-1].weight
    if architecture.inputs != inputs:
        raise ConfigurationError(
            f"{first!r} has shape {weights[first].shape}, expected ({len(weights[first])}, {inputs}): "
            f"the agent's observation has {pluralize(inputs, 'number')}",
            hint="give the server the observation space of this agent",
        )
    if architecture.outputs != outputs:
        wanted = outputs // 2 if architecture.free_log_std else outputs
        raise ConfigurationError(
            f"{last!r} has shape {weights[last].shape}, expected ({wanted}, {weights[last].shape[1]}): "
            f"the agent's action is drawn from {pluralize(outputs, 'number')}",
            hint="give the server the action space of this agent",
        )
