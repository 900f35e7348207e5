"""From a map to a message, in either dialect and in every spelling of the published texts and of known servers."""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.rllink.fields import LARGEST_NUMBER, Fields
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    Ping,
    Pong,
    SetConfig,
    SetState,
    Unknown,
)
from ospbridge.rllink.untrusted import Misfit, shown
from ospbridge.rllink.weights import MlirWeights, ModuleWeights, OnnxWeights

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.rllink.weights import Weights

__all__ = ["LARGEST_MODEL", "message_of", "unzipped"]

LARGEST_MODEL: Final = 256 * 1024 * 1024
"""Bytes that a compressed model may have when it is decompressed."""
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_FORMAT: Final = 31
"""What zlib calls the format of gzip, with its largest window."""
LONGEST_NAME: Final = 100
DEFAULT_MODULE: Final = "default_policy"
SEQ_NO: Final = "weights_seq_no"
STEPS: Final = ("env_steps_per_sample", "env_steps", "timesteps")


def message_of(value: Any) -> Message:
    """The message in a decoded body. Raises Misfit for what is none."""
    body = Fields(value, "a message")
    kind = body.text("type")
    read = _READERS.get(kind)
    if read is None:
        return Unknown(kind, body.keys())
    return read(Fields(value, kind))


def unzipped(data: bytes, *, largest: int = LARGEST_MODEL) -> bytes:
    """What gzip compressed. Raises Misfit for other bytes, and before ``largest`` bytes are exceeded."""
    stream = zlib.decompressobj(GZIP_FORMAT)
    try:
        model = stream.decompress(data, largest)
    except zlib.error as error:
        raise Misfit(f"a model that gzip did not compress: {error}") from None
    if stream.unconsumed_tail or (not stream.eof and len(model) >= largest):
        raise Misfit(
            f"a model of {len(data)} compressed bytes that is larger than {largest} bytes when decompressed"
        )
    if not stream.eof:
        raise Misfit(f"a compressed model that is cut off after {len(data)} bytes")
    return model


def _set_config(body: Fields) -> SetConfig:
    pickled = body.find("config")
    if pickled is not None and not isinstance(pickled, bytes):
        raise Misfit(f"{body.where('config')} must be bytes, got {shown(pickled)}")
    steps = body.optional_count(*STEPS)
    if steps is None and pickled is None:
        body.need(STEPS[0], "config")
    server = body.find("server")
    return SetConfig(
        steps,
        body.optional_flag("force_on_policy"),
        pickled,
        server[:LONGEST_NAME] if isinstance(server, str) else None,
    )


def _set_state(body: Fields) -> SetState:
    return SetState(_weights(body))


def _weights(body: Fields) -> Weights:
    if body.find("state") is not None:
        state = body.inner("state")
        module = state.inner("rl_module")
        seq_no = state.optional_count(SEQ_NO)
        return ModuleWeights(_layers(module), body.count(SEQ_NO) if seq_no is None else seq_no)
    seq_no = body.count(SEQ_NO)
    if body.find("onnx_file") is None and body.find("mlir_file") is not None:
        return MlirWeights(_model(body, "mlir_file"), seq_no)
    return OnnxWeights(_model(body, "onnx_file", "mlir_file", "state"), seq_no)


def _layers(module: Fields) -> dict[str, NDArray[np.float32]]:
    """The arrays of one policy, on their own or under the name that RLlib gives an only one."""
    if module.keys() == (DEFAULT_MODULE,):
        module = module.inner(DEFAULT_MODULE)
    names = module.keys()
    if not names:
        raise Misfit(f"{module.where('the weights')} are empty")
    layers = {}
    for name in names:
        array = module.array(name)
        if array.dtype.kind not in "fiu":
            raise Misfit(f"{module.where(name)} must hold numbers, got {array.dtype}")
        with np.errstate(over="ignore"):
            layers[name] = np.asarray(array, np.float32, order="C")
    return layers


def _model(body: Fields, *keys: str) -> bytes:
    """The model file under the first of the keys, in base64 where it came as text, compressed or not."""
    value = body.need(*keys)
    if isinstance(value, str):
        try:
            value = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise Misfit(f"{body.where(keys[0])} must be base64: {error}") from None
    if not isinstance(value, bytes):
        raise Misfit(f"{body.where(keys[0])} must be base64 or bytes, got {shown(value)}")
    return unzipped(value) if value.startswith(GZIP_MAGIC) else value


def _episodes(body: Fields) -> Episodes:
    return Episodes(*_experience(body))


def _episodes_and_get_state(body: Fields) -> EpisodesAndGetState:
    return EpisodesAndGetState(*_experience(body))


def _experience(body: Fields) -> tuple[tuple[EpisodeFragment, ...], int | None]:
    episodes = body.entries("episodes")
    fragments = tuple(
        _fragment(Fields(episode, body.where(f"episodes[{number}]")))
        for number, episode in enumerate(episodes)
    )
    return fragments, body.optional_count(SEQ_NO)


def _fragment(episode: Fields) -> EpisodeFragment:
    extra = episode.optional_inner("extra_model_outputs")
    t_started = episode.optional_count("t_started") or 0
    origin = _origin(episode)
    inputs, logp = (
        extra.optional_array(key) if extra.find(key) is not None else episode.optional_array(key)
        for key in ("action_dist_inputs", "action_logp")
    )
    try:
        fragment = EpisodeFragment(
            id=episode.text("id_", "id", default=""),
            observations=episode.array("observations", "obs"),
            actions=episode.array("actions"),
            rewards=episode.array("rewards"),
            terminated=episode.flag("is_terminated", "terminated"),
            truncated=episode.flag("is_truncated", "truncated"),
            action_dist_inputs=inputs,
            action_logp=logp,
            t_started=t_started,
            weights_seq_no=_first_count(episode.optional_count(SEQ_NO), origin.get(SEQ_NO)),
            agent=_name(origin.get("agent")),
            simulator=_name(origin.get("simulator")),
            choices=_first_count(origin.get("choices")),
        )
    except LocalProtocolError as error:
        raise Misfit(f"{episode.where(error.message)}") from None
    t = episode.optional_count("t")
    if t is not None and t != fragment.t:
        # RLlib counts by `t` alone and would believe a number of steps that are not there.
        raise Misfit(
            f"{episode.where('t')} must be {fragment.t}, t_started and its {fragment.steps} steps, got {t}"
        )
    return fragment


def _origin(episode: Fields) -> dict[Any, Any]:
    """What our own clients say in the place that is each client's own; others may have anything there."""
    found = episode.find("custom_data")
    return found if isinstance(found, dict) else {}


def _first_count(*said: Any) -> int | None:
    return next((count for count in said if type(count) is int and 0 <= count <= LARGEST_NUMBER), None)


def _name(said: Any) -> str:
    return said[:LONGEST_NAME] if isinstance(said, str) else ""


_READERS: Final[dict[str, Callable[[Fields], Message]]] = {
    "PING": lambda _: Ping(),
    "PONG": lambda _: Pong(),
    "GET_CONFIG": lambda _: GetConfig(),
    "GET_STATE": lambda _: GetState(),
    "SET_CONFIG": _set_config,
    "SET_STATE": _set_state,
    "EPISODES": _episodes,
    "EPISODES_AND_GET_STATE": _episodes_and_get_state,
}
