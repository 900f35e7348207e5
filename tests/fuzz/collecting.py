"""`python -m tests.fuzz.collecting` makes the corpora anew: from recordings of real peers, one input of each shape.

What was found by fuzzing stays: it is in the files that are called found.hex.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from ospbridge.errors import ValueRejected
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
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
)
from ospbridge.rllink.parcels import packed_up
from ospbridge.rllink.weights import OnnxWeights
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.task.shipped import shipped, shipped_file
from tests.fuzz import osp_targets, rllink_targets
from tests.fuzz.other_targets import spool_of
from tests.fuzz.scripts import Piece, written
from tests.fuzz.target import CORPUS
from tests.hub.examples import REPLIES, REQUESTS, framed
from tests.osp.served import Server
from tests.osp.test_recordings import RECORDINGS, datagrams
from tests.record.test_episode import whole
from tests.rllink.episodes import episode
from tests.rllink.recordings import body_of, golden, handshake, native_episode

LONGEST = 2000
"""Bytes of what is taken of a recording, unless nothing of its shape is shorter."""


def kept(name: str, inputs: Iterable[bytes], shape: Callable[[bytes], Any] = lambda data: data) -> None:
    """One line for the shortest input of each shape."""
    shapes: dict[Any, bytes] = {}
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        shapes.setdefault(shape(data), data)
    path = CORPUS / name / "recorded.hex"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{data.hex()}\n" for data in shapes.values() if data))


# --- OSP -----------------------------------------------------------------------------------------------------------


def of_recordings(direction: str) -> list[bytes]:
    return [
        data
        for path in RECORDINGS
        for heard, data in datagrams(path).values()
        if heard == direction and len(data) <= 1024
    ]


def datagram_shape(data: bytes) -> Any:
    """Its code, whether its first field is small, whether it has an end byte, and roughly its length."""
    return (
        data[:1],
        min(data[1:2], b"\2"),
        data[2:5].strip(b"\0") == b"",
        data[-1:] == b"x",
        len(data).bit_length(),
    )


def answered(profile: Profile, number: int) -> bytes:
    """What a server says to one exchange of a client, as a script for the client."""
    server = Server(
        profile, SyntheticWorld(osp_targets.INPUTS, osp_targets.OUTPUTS, osp_targets.INFOS, values=3)
    )
    peer = server.player(1)
    assert peer.find("/Simulation/SimulationTime") == {
        "/Simulation/SimulationTime": (osp_targets.CLOCK, "Double")
    }
    machine, vote = osp_targets.on_stage(profile, clock=True)
    machine.now = server.now
    osp_targets.begin_next(machine, vote, number, server.now)
    pieces = []
    for _ in range(200):
        for sent in machine.outgoing:
            peer.send(bytes(sent))
        machine.outgoing.clear()
        if machine.finished:
            break
        came = peer.read_all()
        for data in came:
            pieces.append(Piece(2, data))
            machine.receive(data, server.now)
        if not came:
            assert machine.deadline is not None
            server.wait(max(machine.deadline - server.now, 0.001))
            machine.handle_timer(server.now)
            pieces.append(Piece(0x85, b""))
    with suppress(ValueRejected):  # the clock cannot be set
        machine.result()
    return written((number << 3 | 2 | (profile is NERD)) & 255, pieces[: osp_targets.TIMERS_AT_MOST])


def asked(profile: Profile) -> bytes:
    """What two clients may say to a server in a minute, as a script for the server."""
    init = b"\x05\1\1" if profile is NERD else b"\x05\1\0\0\0\1\0\0\0"
    both = [b"\x5a", b"\x5d", b"\x28.*\0", b"\x14/Synthetic/Mark\0", b"\x14/Control/StepCompleted\0"]
    one = [
        b"\x5f\1\0\0\0",
        b"\x61",
        b"\x32\1\0\0\0",
        b"\x34\1\0\0\0" + b"0.5\0",
        b"\x64\1\0\0\0",
        b"\x46\7\0\0\0",
    ]
    end = [b"\x4b", b"\x4c"]
    step = b"\x50\1\0\0\0\2\0\0\0" + bytes(8)
    pieces = [Piece(0x05, init), Piece(0x45, init)]
    pieces += [Piece(who << 3, data) for data in both for who in (1, 2)]
    pieces += [Piece(1 << 3, data) for data in one + end + [step, b"\x56\1\0\0\0"]]
    pieces += [
        Piece(2 << 3, data) for data in (b"\x64\2\0\0\0", b"\x38\1\0\0\0\1\0\0\0", b"\x36\1\0\0\0\1\0\0\0")
    ]
    pieces += [Piece(2 << 3, b"\x50\2\0\0\0\2\0\0\0" + bytes(8)), Piece(1 << 3 | 4, step)]
    pieces += [
        Piece(1 << 3 | 5, b"\x56\1\0\0\0"),
        Piece(2 << 3, b"\x56\2\0\0\0"),
        Piece(1 << 3, b"\x69\1\0\0\0"),
    ]
    pieces += [Piece(2 << 3, b"\x0a"), Piece(1 << 3, b"\x07")]
    return written(int(profile is NERD), pieces)


def osp() -> None:
    replies, requests = of_recordings("s>c"), of_recordings("c>s")
    kept("osp-reply", replies, datagram_shape)
    kept("osp-request", requests, datagram_shape)
    exchanges = range(len(osp_targets.EXCHANGES))
    kept("osp-client", [answered(profile, number) for profile in (DOCUMENT, NERD) for number in exchanges])
    acks = [b"\x06\1\0\0\0\1\0\0\0", b"\x06\1\1\x78", b"\x06\2\0\0\0\1\0\0\0", b"\x5b\0\0\0\0"]
    joins = [written(how, [Piece(0x42, ack) for ack in (acks[how % 4], acks[0])]) for how in range(4)]
    kept("osp-connecting", joins)
    scripts = [asked(profile) for profile in (DOCUMENT, NERD)]
    # What a recorded client said, in pieces short enough to be bent.
    for path in RECORDINGS:
        said = [data for heard, data in datagrams(path).values() if heard == "c>s" and len(data) <= 1024][:40]
        scripts.append(written(1, [Piece(5 if data[:1] == b"\5" else 1 << 3 | 1, data) for data in said]))
    kept("osp-server", [script for script in scripts if len(script) < 8 * LONGEST])


# --- RLlink --------------------------------------------------------------------------------------------------------


def shape_of_body(data: bytes) -> Any:
    return data[:40], len(data).bit_length()


def rllink_bodies(dialect: Dialect) -> list[bytes]:
    real = [*golden().values(), *handshake().values(), native_episode()]
    first = b"{" if dialect is JSON else b"\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\xde"
    bodies = [bytes(body_of(data)) for data in real]
    bodies = [body for body in bodies if body[0] in first and len(body) < 8 * LONGEST]
    return bodies + [bytes(body_of(dialect.encode(message))) for message in ours()]


def ours() -> list[Message]:
    model = SetState(OnnxWeights(b"a model", 3))
    boxes = Episodes((episode(2, action=2), episode(1, seed=1)), 4)
    return [Ping(), Pong(), GetConfig(), GetState(), rllink_targets.CONFIG, model, boxes]


def rllink() -> None:
    for dialect in (JSON, MSGPACK):
        kept(f"rllink-{dialect.name}", rllink_bodies(dialect), shape_of_body)
    settings = handshake()["s2c SET_CONFIG"]
    config = MSGPACK.decode(body_of(settings))
    assert isinstance(config, SetConfig)
    assert config.pickled is not None
    kept("rllink-pickle", [config.pickled])
    state = SetState(rllink_targets.WEIGHTS)
    newer = SetState(OnnxWeights(b"another model", 9))
    clients, servers, streams = [], [], []
    for how, dialect in ((0, MSGPACK), (1, JSON)):
        heard: list[Message] = [
            Pong(),
            rllink_targets.CONFIG,
            SetState(OnnxWeights(b"a model", 3)),
            state,
            newer,
        ]
        pieces = [Piece(2, bytes(dialect.encode(message))) for message in heard]
        clients += [written(how | 2 | number << 3, pieces[number % 3 :]) for number in range(6)]
        wanted = EpisodesAndGetState((rllink_targets.FRAGMENT,))
        said: list[Message] = [Ping(), GetConfig(), GetState(), Episodes((episode(2),)), wanted, Ping()]
        servers.append(written(how, [Piece(0x80, bytes(dialect.encode(message))) for message in said]))
        stream = b"".join(dialect.encode(message) for message in said[:3])
        streams.append(written(2, [Piece(0, stream[:11]), Piece(0, stream[11:30]), Piece(0, stream[30:])]))
    kept("rllink-client", clients)
    kept("rllink-server", servers)
    kept("rllink-framing", streams)


# --- the rest ------------------------------------------------------------------------------------------------------


def hubs() -> None:
    kept("hub-request", map(msgspec.msgpack.encode, REQUESTS))
    kept("hub-reply", map(msgspec.msgpack.encode, REPLIES))
    pieces = [Piece(0, framed(message)) for message in REQUESTS]
    kept("hub-framing", [written(0, pieces[:4]), written(0, pieces[4:])])


def files() -> None:
    for name in shipped():
        file = shipped_file(name)
        assert file is not None
        (CORPUS / "scenario").mkdir(exist_ok=True)
        shutil.copy(file, CORPUS / "scenario" / file.name)
    parcels = [packed_up(episode(2)), packed_up(episode(3, action=2, terminated=False))]
    kept("parcel", parcels)
    kept("spool", [spool_of(parcels[0], b"x")])
    kept("recorded-episode", [whole()])


if __name__ == "__main__":
    osp()
    rllink()
    hubs()
    files()
