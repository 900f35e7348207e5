"""From a decoded body to a message, in either dialect and in every spelling of the published texts and known servers.

Every refusal is a Misfit that names the message, the key and what came. Arrays are the maps that msgpack_numpy makes,
or lists of numbers; msgpack_numpy unpickles an array of kind "O", here that is refused like every other type that is
not in ``DTYPES``. Layout observed on Ray 2.60.0: ``{b"nd": true, b"type": "<f4", b"kind": b"", b"shape": [..],
b"data": bytes}`` for an array, ``{b"nd": false, b"type": .., b"data": ..}`` for a single number.
"""

from __future__ import annotations

import base64
import binascii
import math
import reprlib
import zlib
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.rllink.messages import (
    EpisodeFragment,
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    ModuleWeights,
    OnnxWeights,
    Ping,
    Pong,
    SetConfig,
    SetState,
    Unknown,
)
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.rllink.messages import Weights

__all__ = [
    "DTYPES",
    "GZIP_FORMAT",
    "LARGEST_MODEL",
    "LONGEST_TOLD",
    "Misfit",
    "message_of",
    "packed",
    "read_array",
    "shown",
    "unzipped",
]

LONGEST_SHOWN: Final = 60
LONGEST_TOLD: Final = 500
"""Bytes of a message about what a peer sent: names that are in it are the peer's choice."""
_repr: Final = reprlib.Repr()
_repr.maxlist = _repr.maxtuple = _repr.maxdict = 3
_repr.maxlevel = 2
_repr.maxstring = _repr.maxother = _repr.maxlong = 40
DTYPES: Final = {
    name: np.dtype(name)
    for name in (
        *("<f2", "<f4", "<f8"),
        *("|i1", "<i2", "<i4", "<i8"),
        *("|u1", "<u2", "<u4", "<u8"),
        "|b1",
    )
}
MOST_DIMENSIONS: Final = 8
LARGEST_DIMENSION: Final = 2**31 - 1
LARGEST_NUMBER: Final = 2**63 - 1
KEYS_SHOWN: Final = 12
LARGEST_MODEL: Final = 256 * 1024 * 1024
"""Bytes that a compressed model may have when it is decompressed."""
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_FORMAT: Final = 31
"""What zlib calls the format of gzip, with its largest window."""
LONGEST_NAME: Final = 100
LONGEST_KEY: Final = 1000
"""Characters of the name of an array; RLlib's own have some 50."""
DEFAULT_MODULE: Final = "default_policy"
SEQ_NO: Final = "weights_seq_no"
STEPS: Final = ("env_steps_per_sample", "env_steps", "timesteps")


class Misfit(Exception):
    """A value that the protocol does not allow. Dialects turn it into RemoteProtocolError, with the bytes."""


def shown(value: Any) -> str:
    """A value's type and, in short, the value. Its cost does not depend on the size of what came."""
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes [{bytes(value[:16]).hex(' ')}{' ...' if len(value) > 16 else ''}]"
    return f"{type(value).__name__} {_repr.repr(value)[:LONGEST_SHOWN]}"


def packed(array: NDArray[Any]) -> dict[bytes, Any]:
    """The map for a C-contiguous array, to be encoded as msgpack: byte for byte what msgpack_numpy makes of it."""
    return {b"nd": True, b"type": array.dtype.str, b"kind": b"", b"shape": array.shape, b"data": array.data}


def is_packed(value: Any) -> TypeGuard[dict[bytes, Any]]:
    """Whether a decoded value is one of the maps that stand for an array or a single number."""
    return isinstance(value, dict) and b"nd" in value


def read_array(value: Any, where: str) -> NDArray[Any]:
    """An array out of a map, a list of such maps, or a list of numbers, nested or not. Raises Misfit for the rest."""
    if is_packed(value):
        return _unpacked(value, where)
    if not isinstance(value, list):
        raise Misfit(f"{where} must be an array, got {shown(value)}")
    if value and is_packed(value[0]):
        return _stacked(value, where)
    return _listed(value, where)


def read_number(value: Any, where: str) -> Any:
    """A plain value, or the one in the map that msgpack_numpy makes of a numpy scalar."""
    if not is_packed(value):
        return value
    array = _unpacked(value, where)
    if array.ndim:
        raise Misfit(f"{where} must be one number, got an array of shape {array.shape}")
    return array.item()


def _listed(values: list[Any], where: str) -> NDArray[Any]:
    """One or two dimensions. Types are looked at first: numpy gives each of many texts the room of the longest."""
    rows = values if values and isinstance(values[0], list) else [values]
    types: set[type] = set()
    for row, numbers in enumerate(rows):
        if not isinstance(numbers, list):
            raise Misfit(f"{where}[{row}] must be a list like {where}[0], got {shown(numbers)}")
        types.update(map(type, numbers))
    if not types <= {int, float}:
        raise Misfit(
            f"{where} must hold numbers only, got {', '.join(sorted(each.__name__ for each in types))}"
        )
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{where} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "fiu" or (array.dtype.kind == "f" and float not in types and types):
        raise Misfit(f"{where} must hold numbers of 64 bits at most, got {shown(values)}")
    return array


def _stacked(values: list[Any], where: str) -> NDArray[Any]:
    arrays = [_unpacked(value, f"{where}[{row}]") for row, value in enumerate(values)]
    first = arrays[0]
    for row, array in enumerate(arrays):
        if array.shape != first.shape or array.dtype != first.dtype:
            raise Misfit(
                f"{where}[{row}] must be like {where}[0], {first.dtype}{list(first.shape)}, "
                f"got {array.dtype}{list(array.shape)}"
            )
    return _made(lambda: np.stack(arrays), where)


def _unpacked(value: Any, where: str) -> NDArray[Any]:
    """An array over the bytes as they came, not writeable."""
    if not is_packed(value):
        raise Misfit(f"{where} must be an array, got {shown(value)}")
    is_array = value[b"nd"]
    kind = value.get(b"kind", b"")
    if not isinstance(is_array, bool) or kind not in (b"", ""):
        raise Misfit(
            f"{where} is no plain array: nd {shown(is_array)}, kind {shown(kind)}, and only kind '' is read"
        )
    name = value.get(b"type")
    if not isinstance(name, str) or name not in DTYPES:
        raise Misfit(f"{where} must be one of {', '.join(DTYPES)}, got {shown(name)}")
    shape = _shape(value.get(b"shape"), where) if is_array else ()
    data = value.get(b"data")
    dtype = DTYPES[name]
    size = math.prod(shape) * dtype.itemsize
    if not isinstance(data, bytes) or len(data) != size:
        raise Misfit(f"{where} of {name}{list(shape)} must have {size} bytes of data, got {shown(data)}")
    return _made(lambda: np.ndarray(shape, dtype, data), where)


def _made(make: Callable[[], NDArray[Any]], where: str) -> NDArray[Any]:
    """An array of no elements may still have dimensions that numpy cannot count."""
    try:
        return make()
    except (ValueError, OverflowError) as error:
        raise Misfit(f"{where} has a shape that no array can have: {error}") from None


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        raise Misfit(f"the shape of {where} must be a list of at most {MOST_DIMENSIONS}, got {shown(value)}")
    for length in value:
        if type(length) is not int or not 0 <= length <= LARGEST_DIMENSION:
            raise Misfit(f"the shape of {where} must be counts, got {shown(value)}")
    return tuple(value)


class Fields:
    """The keys of one map. Where several spellings are named, the first that is there counts; null is not there."""

    __slots__ = ("_map", "_owner")

    def __init__(self, value: Any, owner: str) -> None:
        if not isinstance(value, dict):
            raise Misfit(f"{owner} must be a map, got {shown(value)}")
        self._map = value
        self._owner = owner

    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in self._map if isinstance(key, str))

    def where(self, name: str) -> str:
        return f"{self._owner}: {name}"

    def find(self, *names: str) -> Any:
        """The value under the first of ``names`` that is there, or None."""
        for name in names:
            value = self._map.get(name)
            if value is not None:
                return value
        return None

    def need(self, *names: str) -> Any:
        value = self.find(*names)
        if value is None:
            raise self._missing(names)
        return value

    def _missing(self, names: tuple[str, ...]) -> Misfit:
        keys = listed(self.keys()[:KEYS_SHOWN]) or "none"
        return Misfit(f"{self._owner}: key {' or '.join(names)} is missing, there are: {keys}")

    def text(self, *names: str, default: str | None = None) -> str:
        value = self.find(*names) if default is not None else self.need(*names)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise Misfit(f"{self.where(names[0])} must be text, got {shown(value)}")
        return value

    def flag(self, *names: str) -> bool:
        value = self.optional_flag(*names)
        if value is None:
            raise self._missing(names)
        return value

    def optional_flag(self, *names: str) -> bool | None:
        value = self._number(*names)
        if value is not None and not isinstance(value, bool):
            raise Misfit(f"{self.where(names[0])} must be true or false, got {shown(value)}")
        return value

    def _number(self, *names: str) -> Any:
        value = self.find(*names)
        return read_number(value, self.where(names[0])) if is_packed(value) else value

    def count(self, *names: str) -> int:
        value = self.optional_count(*names)
        if value is None:
            raise self._missing(names)
        return value

    def optional_count(self, *names: str) -> int | None:
        value = self._number(*names)
        if value is not None and (type(value) is not int or not 0 <= value <= LARGEST_NUMBER):
            raise Misfit(f"{self.where(names[0])} must be a count, got {shown(value)}")
        return value

    def entries(self, *names: str) -> list[Any]:
        value = self.need(*names)
        if not isinstance(value, list):
            raise Misfit(f"{self.where(names[0])} must be a list, got {shown(value)}")
        return value

    def array(self, *names: str) -> NDArray[Any]:
        """An array, plain or in the buffer that RLlib's episodes keep it in."""
        return _buffered(self.need(*names), self.where(names[0]))

    def optional_array(self, *names: str) -> NDArray[Any] | None:
        value = self.find(*names)
        return None if value is None else _buffered(value, self.where(names[0]))

    def inner(self, *names: str) -> Fields:
        return Fields(self.need(*names), self.where(names[0]))

    def optional_inner(self, *names: str) -> Fields:
        """The map under a key, an empty one where the key is not there."""
        value = self.find(*names)
        return Fields({} if value is None else value, self.where(names[0]))


def _buffered(value: Any, where: str) -> NDArray[Any]:
    """What a lookback buffer holds of its own: the first ``lookback`` items belong to the piece before."""
    if not (isinstance(value, dict) and "data" in value):
        return read_array(value, where)
    buffer = Fields(value, where)
    lookback = buffer.optional_count("lookback") or 0
    array = read_array(buffer.need("data"), f"{where}.data")
    if array.ndim == 0 or lookback > len(array):
        raise Misfit(f"{where}: lookback must be at most the {array.shape} of its data, got {lookback}")
    return array[lookback:]


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
        if len(name) > LONGEST_KEY:
            raise Misfit(f"an array of weights has a name of {len(name)} characters, more than {LONGEST_KEY}")
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
