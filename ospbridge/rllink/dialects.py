"""The two ways to write RLlink: ``json`` of Ray 2.47 and 2.48, ``msgpack`` of Ray 2.49 and later.

A dialect turns messages into bytes with their header, and bodies into messages. Both read every spelling; each writes
what servers of its kind need. Key order and white space are those of Ray's own client, so that what both can say is
the same byte for byte; only experience in ``json`` is written tighter, with the shortest digits of each float32.

How many values a body holds is counted before any of them is made: an empty list is one byte on the wire, and some 70
here. A fragment that lies on a disk for a while is a checksum, and then a message of the dialect msgpack.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from abc import ABC, abstractmethod
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
import numpy as np
import orjson

from ospbridge.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ospbridge.rllink.batches import BatchMode
from ospbridge.rllink.decoding import GZIP_FORMAT, LONGEST_TOLD, Misfit, message_of, packed
from ospbridge.rllink.framing import HEADER_LENGTH, header
from ospbridge.rllink.messages import (
    Episodes,
    EpisodesAndGetState,
    GetConfig,
    GetState,
    Message,
    ModuleWeights,
    Ping,
    Pong,
    SetConfig,
    SetState,
)
from ospbridge.text import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.rllink.messages import EpisodeFragment, Weights

__all__ = ["DIALECTS", "JSON", "MSGPACK", "Dialect", "dialect_named", "dialect_of", "packed_up", "unpacked"]

MOST_VALUES: Final = 4_000_000
"""Of a msgpack body, each element of a list and each key and value of a map; of JSON, of which honest bodies have a
number for each few bytes, its lists and maps. Experience that comes in arrays has about one a step."""
LOOKED_AT: Final = 2**18
"""Bytes above which a body is looked at: what a shorter one can stand for does no harm."""

_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Of those that say how long they are, in so many bytes: of bytes, extensions and texts."""
_EXTENSIONS: Final = frozenset({0xC7, 0xC8, 0xC9})
"""They have one byte more, a type."""
_HEADS: Final[dict[int, int]] = {
    **dict.fromkeys(_SIZES, 0),
    **{0xA0 + size: 1 + size for size in range(32)},
    0xCA: 5,
    0xCB: 9,
    0xDC: 3,
    0xDD: 5,
    0xDE: 3,
    0xDF: 5,
    **{first + power: 1 + 2**power for first in (0xCC, 0xD0) for power in range(4)},
    **{0xD4 + power: 2 + 2**power for power in range(5)},
}
_LENGTHS: Final = tuple(_HEADS.get(first, 1) for first in range(256))
"""What each first byte takes with all that belongs to it but a length that follows; of lists and maps the head."""
_NAMES: Final[dict[type[Any], str]] = {
    Ping: "PING",
    Pong: "PONG",
    GetConfig: "GET_CONFIG",
    GetState: "GET_STATE",
    SetConfig: "SET_CONFIG",
    SetState: "SET_STATE",
    Episodes: "EPISODES",
    EpisodesAndGetState: "EPISODES_AND_GET_STATE",
}
_pack: Final = msgspec.msgpack.Encoder()
_unpack: Final = msgspec.msgpack.Decoder()
_CHECKSUM: Final = struct.Struct("<I")


def check_msgpack(body: bytes | bytearray | memoryview, most: int = MOST_VALUES) -> None:
    """Raises Misfit for more than ``most`` values."""
    if len(body) <= LOOKED_AT:
        return
    at, end, lengths = 0, len(body), _LENGTHS
    for _ in range(most):
        if at >= end:
            return
        first = body[at]
        length = lengths[first]
        if not length:
            size = _SIZES[first]
            behind = at + 1 + size
            length = 1 + size + int.from_bytes(body[at + 1 : behind], "big") + (first in _EXTENSIONS)
        at += length
    if at < end:
        raise _too_many(len(body), most)


def check_json(body: bytes | bytearray | memoryview, most: int = MOST_VALUES) -> None:
    """Raises Misfit for more than ``most`` lists and maps."""
    if len(body) <= LOOKED_AT:
        return
    found = bytes(body) if isinstance(body, memoryview) else body
    if found.count(b"[") + found.count(b"{") > most:
        raise _too_many(len(body), most)


def _too_many(size: int, most: int) -> Misfit:
    return Misfit(f"a message of {size} bytes holds more than {most} values")


class Dialect(ABC):
    """One way to write RLlink. There is one object of each."""

    name: ClassVar[str]
    releases: ClassVar[str]
    """Which releases of Ray speak it."""
    batch_mode: ClassVar[BatchMode]
    """How to make batches where nobody says otherwise."""
    continues_episodes: ClassVar[bool]
    """Whether the pieces of an episode are known to belong together."""
    survives_numbers: ClassVar[bool]
    """Whether its servers learn from actions that are numbers."""
    why_no_settings: ClassVar[str] = ""
    """What to do about one that does not tell its settings, beside what its log says."""
    why_no_weights: ClassVar[str] = ""
    """The same about weights before the first episode."""

    def __repr__(self) -> str:
        return f"<{self.name} of Ray {self.releases}>"

    @abstractmethod
    def encode(self, message: Message) -> bytes | bytearray:
        """The bytes of a message, with header.

        Raises LocalProtocolError for a message this dialect cannot carry: a body that is too long, NaN in ``json``.
        """

    def decode(self, body: bytes | bytearray | memoryview, *, most_values: int = MOST_VALUES) -> Message:
        """The message in a body, without header. Raises RemoteProtocolError for anything else."""
        try:
            return message_of(self._load(body, most_values))
        except Misfit as error:
            told = str(error)
        except MemoryError:
            told = f"a message of {len(body)} bytes stands for more than the memory has room for"
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            told = f"expected an RLlink message in the dialect {self.name}: {error}"
        raise RemoteProtocolError(
            printable(told, LONGEST_TOLD),
            data=bytes(body),
            offset=0,
            hint=f"this dialect is spoken by Ray {self.releases}",
        )

    @abstractmethod
    def size(self, fragment: EpisodeFragment) -> int:
        """How many bytes of a message the fragment takes at most."""

    @abstractmethod
    def _load(self, body: bytes | bytearray | memoryview, most: int) -> Any:
        """The body as plain data; the errors are those of the library, and Misfit."""

    @abstractmethod
    def _episode(self, fragment: EpisodeFragment) -> dict[str, Any] | msgspec.Raw: ...

    def _map(self, message: Message) -> dict[str, Any]:
        name = _NAMES.get(type(message))
        if name is None:
            raise LocalProtocolError(f"{message!r} is no message that can be sent")
        told: dict[str, Any] = {"type": name}
        match message:
            case Episodes():
                told["episodes"] = [self._episode(fragment) for fragment in message.fragments]
                told["timesteps"] = message.env_steps
            case SetConfig():
                values = (
                    ("env_steps_per_sample", message.env_steps_per_sample),
                    ("force_on_policy", message.force_on_policy),
                    ("config", message.pickled),
                    ("server", message.server),
                )
                told.update((key, value) for key, value in values if value is not None)
            case SetState():
                self._add_weights(told, message.weights)
        return told

    def _add_weights(self, told: dict[str, Any], weights: Weights) -> None:
        if isinstance(weights, ModuleWeights):
            layers = {name: self._array(array) for name, array in weights.arrays.items()}
            told["state"] = {"rl_module": layers, "weights_seq_no": weights.seq_no}
            return
        told["onnx_file"] = base64.b64encode(_zipped(weights.model)).decode("ascii")
        told["weights_seq_no"] = weights.seq_no

    @abstractmethod
    def _array(self, array: NDArray[Any]) -> Any: ...


class JsonDialect(Dialect):
    """JSON. Its servers read no names of episodes: what is sent in pieces counts as so many episodes.

    A server of this kind reports the return of each piece as an episode's, and keeps every piece that is neither
    terminated nor truncated for ever. So batches are made of whole episodes unless the caller decides otherwise, and
    a piece that must be cut is marked truncated (see ``batches.cut``): it is learned from in the same way, because
    the value of its last observation is estimated either way.
    """

    name = "json"
    releases = "2.47 and 2.48"
    batch_mode = BatchMode.COMPLETE_EPISODES
    continues_episodes = False
    survives_numbers = False
    why_no_weights = (
        "Ray 2.47 and 2.48 export an ONNX model then, and never answer again where they cannot: without onnx and "
        "onnxscript, or with a torch that their export does not know; "
    )

    LONGEST_FLOAT: ClassVar = 17
    """The digits of a float32, its sign, point, exponent, and the comma behind it."""
    LONGEST_INTEGER: ClassVar = 21
    ROW: ClassVar = 3
    """The brackets and the comma of one row."""
    FRAME: ClassVar = 500
    """The keys, the flags, and what stands around them."""

    def encode(self, message: Message) -> bytes:
        if isinstance(message, Episodes) or (
            isinstance(message, SetState) and isinstance(message.weights, ModuleWeights)
        ):
            body = orjson.dumps(self._map(message), option=orjson.OPT_SERIALIZE_NUMPY)
        else:
            try:
                body = json.dumps(self._map(message)).encode()
            except TypeError:
                raise LocalProtocolError(
                    f"the dialect json cannot carry the pickle of {type(message).__name__}"
                ) from None
        return header(len(body)) + body

    def size(self, fragment: EpisodeFragment) -> int:
        floats, integers = _numbers(fragment)
        rows = 4 * (fragment.steps + 1)
        frame = self.FRAME + _named(fragment)
        return frame + self.LONGEST_FLOAT * floats + self.LONGEST_INTEGER * integers + self.ROW * rows

    def _load(self, body: bytes | bytearray | memoryview, most: int) -> Any:
        check_json(body, most)
        return orjson.loads(body)

    def _episode(self, fragment: EpisodeFragment) -> dict[str, Any]:
        episode = {
            "obs": fragment.observations,
            "actions": fragment.actions,
            "rewards": fragment.rewards,
            "is_terminated": fragment.terminated,
            "is_truncated": fragment.truncated,
            "action_dist_inputs": fragment.action_dist_inputs,
            "action_logp": fragment.action_logp,
            # Servers of Ray mind no more than those above.
            "id_": fragment.id or None,
            "t_started": fragment.t_started or None,
            "custom_data": _origin(fragment) or None,
        }
        with np.errstate(over="ignore", invalid="ignore"):
            for key, value in list(episode.items()):
                if value is None:
                    del episode[key]
                elif isinstance(value, np.ndarray):
                    _finite(value, f"episode {fragment.id!r}: {key}")
        return episode

    def _array(self, array: NDArray[Any]) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            _finite(array, "weights")
        return np.asarray(array, np.float32, order="C")


class MsgpackDialect(Dialect):
    """msgpack, with the arrays of msgpack_numpy. An episode is the state of RLlib's SingleAgentEpisode.

    All arrays travel whole. ``infos`` must be there, one for each observation, and must not be said to be finalized.
    """

    name = "msgpack"
    releases = "2.49 and later"
    batch_mode = BatchMode.TRUNCATE_EPISODES
    continues_episodes = True
    survives_numbers = True
    why_no_settings = (
        "Ray 2.49 and later pickle their whole configuration then, and never answer again where they cannot: with "
        "a lambda in it, or, where there are env runners, a class of the program itself, such as its callbacks; "
        "see the learner's log, put these into a module that can be imported, and start it anew"
    )

    FRAME: ClassVar = 1200
    """The keys of an episode and of its arrays."""

    def encode(self, message: Message) -> bytearray:
        told = bytearray(HEADER_LENGTH)
        _pack.encode_into(self._map(message), told, HEADER_LENGTH)
        told[:HEADER_LENGTH] = header(len(told) - HEADER_LENGTH)
        return told

    def size(self, fragment: EpisodeFragment) -> int:
        floats, integers = _numbers(fragment)
        infos = fragment.steps + 1
        return self.FRAME + _named(fragment) + 4 * floats + 8 * integers + infos

    def _load(self, body: bytes | bytearray | memoryview, most: int) -> Any:
        check_msgpack(body, most)
        return _unpack.decode(body)

    def write(self, fragment: EpisodeFragment) -> None:
        """Have it written once, for as many messages as it may be sent in."""
        fragment.keep_written(_pack.encode(self._episode(fragment)))

    def _episode(self, fragment: EpisodeFragment) -> dict[str, Any] | msgspec.Raw:
        if fragment.written is not None:
            return msgspec.Raw(fragment.written)
        outputs = {
            key: _buffer(array)
            for key, array in (
                ("action_dist_inputs", fragment.action_dist_inputs),
                ("action_logp", fragment.action_logp),
            )
            if array is not None
        }
        return {
            "id_": fragment.id,
            "agent_id": None,
            "module_id": None,
            "multi_agent_episode_id": None,
            "observations": _buffer(fragment.observations),
            "actions": _buffer(fragment.actions),
            "rewards": _buffer(fragment.rewards),
            "infos": {"data": [{}] * (fragment.steps + 1), "lookback": 0, "finalized": False, "space": None},
            "extra_model_outputs": outputs,
            "is_terminated": fragment.terminated,
            "is_truncated": fragment.truncated,
            "t_started": fragment.t_started,
            "t": fragment.t,
            "_observation_space": None,
            "_action_space": None,
            "_start_time": None,
            "_last_step_time": None,
            "custom_data": _origin(fragment),
        }

    def _array(self, array: NDArray[Any]) -> Any:
        return packed(np.asarray(array, np.float32, order="C"))


JSON: Final = JsonDialect()
MSGPACK: Final = MsgpackDialect()
DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (JSON, MSGPACK)}


def dialect_named(name: str) -> Dialect | None:
    """The dialect of that name; None for ``auto`` (find out by probing)."""
    if name == "auto":
        return None
    try:
        return DIALECTS[name]
    except KeyError:
        raise ConfigurationError(
            f"unknown dialect {name!r}", hint=f"use one of auto, {', '.join(DIALECTS)}"
        ) from None


def dialect_of(body: bytes | bytearray | memoryview) -> Dialect:
    """The dialect of a peer, by the first byte of its first body. Raises RemoteProtocolError for neither."""
    first = bytes(body[:1])
    if first in (b"{", b" ", b"\t", b"\r", b"\n"):
        return JSON
    if first and (0x80 <= first[0] <= 0x8F or first[0] in (0xDE, 0xDF)):
        return MSGPACK
    raise RemoteProtocolError(
        "expected a map, in JSON or msgpack", data=bytes(body), offset=0, hint="is the peer an RLlink client?"
    )


def _buffer(array: NDArray[Any]) -> dict[str, Any]:
    return {"data": packed(array), "lookback": 0, "finalized": True, "space": None}


def _origin(fragment: EpisodeFragment) -> dict[str, Any]:
    """What is known of a fragment that RLlib has no place for."""
    known = {
        "agent": fragment.agent or None,
        "simulator": fragment.simulator or None,
        "weights_seq_no": fragment.weights_seq_no,
        "choices": fragment.choices,
    }
    return {key: value for key, value in known.items() if value is not None}


def _named(fragment: EpisodeFragment) -> int:
    """Bytes of a fragment's names at most: six for one character, where JSON must escape it."""
    return 6 * (len(fragment.id) + len(fragment.agent) + len(fragment.simulator))


def _finite(array: NDArray[Any], where: str) -> None:
    """Raises LocalProtocolError for an array that is not. The caller ignores what numpy says of it on the way."""
    if array.dtype.kind == "f":
        # A sum of squares is finite only where every number is. It says so sooner, but may overflow.
        flat = array.ravel()
        if isfinite(np.dot(flat, flat)):
            return
    if not np.isfinite(array).all():
        raise LocalProtocolError(
            f"{where} hold NaN or infinity, which the dialect json cannot carry",
            hint="leave the episode out; whatever made the number is to be mended",
        )


def _numbers(fragment: EpisodeFragment) -> tuple[int, int]:
    """How many floats and how many integers a fragment holds."""
    arrays = (
        fragment.observations,
        fragment.actions,
        fragment.rewards,
        fragment.action_dist_inputs,
        fragment.action_logp,
    )
    sizes = [(array.size, array.dtype.kind == "f") for array in arrays if array is not None]
    return sum(size for size, real in sizes if real), sum(size for size, real in sizes if not real)


def _zipped(model: bytes) -> bytes:
    compressor = zlib.compressobj(9, zlib.DEFLATED, GZIP_FORMAT)
    return compressor.compress(model) + compressor.flush()


def packed_up(fragment: EpisodeFragment) -> bytes:
    """The parcel. Whoever sends the fragment in the same dialect has it written already."""
    MSGPACK.write(fragment)
    body = memoryview(MSGPACK.encode(Episodes((fragment,))))[HEADER_LENGTH:]
    return b"".join((_CHECKSUM.pack(zlib.crc32(body)), body))


def unpacked(parcel: bytes) -> EpisodeFragment:
    """The fragment in a parcel. Raises ConfigurationError for one that is damaged."""
    body = memoryview(parcel)[_CHECKSUM.size :]
    if len(parcel) < _CHECKSUM.size or zlib.crc32(body) != _CHECKSUM.unpack_from(parcel)[0]:
        raise _damaged("its checksum is wrong")
    try:
        message = MSGPACK.decode(body)
    except RemoteProtocolError as error:
        raise _damaged(error.message) from None
    if not isinstance(message, Episodes) or len(message.fragments) != 1:
        raise _damaged("it holds no episode")
    return message.fragments[0]


def _damaged(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"a spooled episode is damaged: {why}",
        hint="it is left out; see whether the disk is sound",
    )
