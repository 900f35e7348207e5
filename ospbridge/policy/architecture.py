"""The architecture of an RLModule, read from the names and shapes of its weights.

What acts is an encoder and a head, each a chain of dense layers: ``encoder.encoder.net.mlp.N.weight`` (or
``encoder.actor_encoder``, where the value function has an encoder of its own) and ``pi.net.mlp.N.weight``. N counts
the places of a ``torch.nn.Sequential``: activations take one each and have no weights, so whether there is one shows
between two dense layers, which one it is never. A layer normalisation has a weight of one dimension.

Facts: PPO's RLModules of Ray 2.47.1 and 2.60.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["CLIP", "LOG_STD", "Architecture", "Layer", "read_architecture", "read_widths"]

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
