"""The hub's messages, scenario files, and what lies on a disk for a while."""

from __future__ import annotations

import struct
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec

from ospbridge.errors import ConfigurationError, OspBridgeError, RemoteProtocolError, ScenarioInvalid
from ospbridge.hub.framing import HEAD, Incoming, decode_reply, decode_request
from ospbridge.hub.replies import LONGEST_HOLD, Attached, Held, Observing, Refusal
from ospbridge.hub.requests import LONGEST_WAIT, MomentsSince
from ospbridge.record.episode import read_episode
from ospbridge.record.spool import Spool
from ospbridge.rllink.dialects import unpacked
from ospbridge.task.reading import read
from ospbridge.toml.parsing import NoToml, decoded
from tests.fuzz.mutating import Target, bend, bend_lines, bending, read_script
from tests.fuzz.rllink_targets import bend_msgpack

LARGEST = 100_000


# --- the hub -------------------------------------------------------------------------------------------------------


def _decoded(decode: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        message = decode(data)
    except RemoteProtocolError as error:
        assert error.data == data
        return None
    assert decode(msgspec.msgpack.encode(message)) is not None
    return message


def hub_request(data: bytes) -> None:
    message = _decoded(decode_request, data)
    if isinstance(message, MomentsSince):
        assert 0 <= message.wait <= LONGEST_WAIT


def hub_reply(data: bytes) -> None:
    """What a client makes of a reply at once is made, too."""
    message = _decoded(decode_reply, data)
    if isinstance(message, Held):
        assert 0 <= message.seconds <= LONGEST_HOLD
    elif isinstance(message, Refusal):
        assert isinstance(message.error(), OspBridgeError)
    elif isinstance(message, Attached | Observing):
        for agent in message.agents if isinstance(message, Attached) else [message.agent]:
            agent.interface()
            agent.observation_space()
            agent.action_space()


def hub_framing(data: bytes) -> None:
    """However a stream is cut, the messages in it are those that were announced."""
    _, pieces = read_script(data)
    incoming = Incoming(largest=LARGEST)
    found = 0
    stream = b"".join(piece.data for piece in pieces)
    for piece in pieces:
        rest = memoryview(piece.data)
        while rest:
            space = incoming.space()
            count = min(len(space), len(rest))
            assert 0 < len(space) <= 4 * LARGEST
            space[:count] = rest[:count]
            incoming.received(count)
            rest = rest[count:]
            try:
                while (message := incoming.next_message()) is not None:
                    (length,) = HEAD.unpack_from(stream, found)
                    assert message == stream[found + 4 : found + 4 + length]
                    found += 4 + length
            except RemoteProtocolError:
                (length,) = HEAD.unpack_from(stream, found)
                assert length > LARGEST
                return


def _framed(chance: Any, data: bytes, others: Any) -> bytes:
    if chance.random() < 0.4:
        return bend(chance, data, others)
    body = bend_msgpack(chance, data[4:], [other[4:] for other in others])
    return struct.pack("<I", len(body)) + body


# --- files ---------------------------------------------------------------------------------------------------------


def scenario(data: bytes) -> None:
    try:
        text = decoded(data)
    except NoToml:
        return
    try:
        read(text)
    except ScenarioInvalid as error:
        assert error.mistakes


def parcel(data: bytes) -> None:
    """With a checksum that is right, too: nobody wrote it on purpose, but nothing rules it out."""
    for parcel in (data, struct.pack("<I", zlib.crc32(data[4:])) + data[4:]):
        try:
            unpacked(parcel)
        except ConfigurationError as error:
            assert str(error)


def _on_disk(data: bytes, look: Callable[[Path], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="ospb-", dir=_memory()) as directory:
        path = Path(directory) / "file.npz"
        path.write_bytes(data)
        try:
            with warnings.catch_warnings(action="ignore"):  # numpy's and the parser's, about a strange header
                look(path)
        except ConfigurationError as error:
            assert str(error)


def _memory() -> Path | None:
    """A directory that is no disk, where the system has one."""
    shared = Path("/dev/shm")
    return shared if shared.is_dir() else None


def recorded_episode(data: bytes) -> None:
    """Also where the archive's checksums are right, which would keep most of what is bent from being looked at."""
    with mock.patch.object(zipfile.ZipExtFile, "_update_crc", return_value=None):
        _on_disk(data, read_episode)


def spool(data: bytes) -> None:
    _on_disk(data, _spooled)


def _spooled(path: Path) -> None:
    raised: list[object] = []
    with mock.patch("threading.excepthook", raised.append):
        _filled(path)
    assert not raised


def _filled(path: Path) -> None:
    """Taken from until nothing is left, and put to until the oldest must give way."""
    with Spool(path, limit=500) as spool:
        entries = spool.take(steps=10**6, size=10**9)
        for entry in entries:
            try:
                unpacked(entry.body)
            except ConfigurationError:
                spool.forget([entry])
        for number in range(4):
            spool.put(f"new {number}", 3, b"x" * 200)


TARGETS = (
    Target("hub-request", hub_request, bend_msgpack),
    Target("hub-reply", hub_reply, bend_msgpack),
    Target("hub-framing", hub_framing, bending(_framed), inputs=10_000),
    Target("scenario", scenario, bend_lines, inputs=2000, long=50_000),
    Target("parcel", parcel, inputs=10_000),
    Target("recorded-episode", recorded_episode, inputs=1000, long=50_000),
    Target("spool", spool, inputs=500, long=20_000),
)
