"""An enemy's bytes: any give a message or RemoteProtocolError, nothing else, and take no more room than they have."""

from __future__ import annotations

import contextlib
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ospbridge.errors import OspBridgeError, RemoteProtocolError
from ospbridge.rllink import counting
from ospbridge.rllink.arrays import packed
from ospbridge.rllink.client import ClientMachine, Exchange
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect, dialect_of
from ospbridge.rllink.exchanges import deliver, get_config, get_state, greet, learn
from ospbridge.rllink.framing import header
from ospbridge.rllink.messages import Episodes, EpisodesAndGetState, Ping, Pong
from ospbridge.rllink.server import ServerMachine
from ospbridge.rllink.untrusted import Misfit
from tests.rllink.episodes import episode
from tests.rllink.pair import CONFIG, weights
from tests.rllink.recordings import body_of, golden, handshake, native_episode

DIALECT = st.sampled_from(list(DIALECTS.values()))

REAL = [*golden().values(), *handshake().values(), native_episode()]
WORDS = """
type episodes state rl_module weights_seq_no onnx_file mlir_file config env_steps_per_sample timesteps force_on_policy
obs observations actions rewards is_terminated truncated terminated is_truncated t t_started id_ data lookback
extra_model_outputs action_logp action_dist_inputs default_policy finalized
"""
KINDS = "PING PONG GET_CONFIG GET_STATE SET_CONFIG SET_STATE EPISODES EPISODES_AND_GET_STATE X"
KEYS, TYPES = (st.sampled_from(words.split()) for words in (WORDS, KINDS))
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 5),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["H4sIAAAAAAAA", "H4sIAAAAAAAAAwMAAAAAAAAAAAA=", "AAAA"]),
    TYPES,
)
NUMBERS = st.lists(st.one_of(st.floats(width=32), st.integers(0, 3)), max_size=4)
ARRAYS = st.builds(
    lambda *values: dict(zip((b"nd", b"type", b"kind", b"shape", b"data"), values, strict=True)),
    st.sampled_from([True, False, None, 1]),
    st.sampled_from(["<f4", "<i8", "|b1", "|O", "<f8", 3]),
    st.sampled_from([b"", "", b"O", b"V"]),
    st.lists(st.one_of(st.integers(0, 4), st.integers(-1, 2**33)), max_size=3),
    st.one_of(st.binary(max_size=16), st.sampled_from([bytes(8), bytes(16), bytes(24), "text"])),
)


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(KEYS, inner, max_size=6),
            NUMBERS,
            st.lists(NUMBERS, max_size=4),
        ),
        max_leaves=14,
    )


def messages(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    inner = trees(leaves)
    episodes = st.lists(st.dictionaries(KEYS, inner, max_size=8), max_size=2)
    return st.one_of(
        inner,
        st.builds(lambda kind, rest: {"type": kind} | rest, TYPES, st.dictionaries(KEYS, inner, max_size=5)),
        st.builds(lambda kind, told: {"type": kind, "episodes": told}, TYPES, episodes),
    )


JSON_BODIES = messages(PLAIN).map(lambda told: orjson.dumps(told, default=str))
MSGPACK_BODIES = messages(st.one_of(PLAIN, ARRAYS, st.binary(max_size=8))).map(msgspec.msgpack.encode)
BENT = st.builds(
    lambda data, place, bytes_: (
        data[: 8 + place % (len(data) - 8)] + bytes_ + data[8 + place % (len(data) - 8) + len(bytes_) :]
    )[8:],
    st.sampled_from(REAL),
    st.integers(0, 20_000),
    st.binary(min_size=1, max_size=3),
)
BODIES = st.one_of(st.binary(max_size=60), JSON_BODIES, MSGPACK_BODIES, BENT)


# --- bodies --------------------------------------------------------------------------------------------------------


@given(DIALECT, BODIES)
@example(JSON, b'{"type": "EPISODES", "episodes": [{"obs": [[1e39]], "actions": [], "rewards": []}]}')
def test_any_body_gives_a_message_or_a_clear_error_and_what_it_gave_can_be_written_again(
    dialect: Dialect, body: bytes
) -> None:
    with contextlib.suppress(RemoteProtocolError):
        assert dialect_of(body) in DIALECTS.values()
    try:
        message = dialect.decode(body)
    except RemoteProtocolError:
        return
    try:
        again = body_of(dialect.encode(message))
    except OspBridgeError:
        return
    assert type(dialect.decode(again)) is type(message)


@pytest.mark.parametrize(
    "body",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x81\xa4type\xc6\xff\xff\xff\xff",
        b"\x82\xa4type\xa8EPISODES\xa8episodes\xdd\xff\xff\xff\xff\x80",
        msgspec.msgpack.encode(
            {
                "type": "SET_STATE",
                "state": {"rl_module": {"w": packed(np.zeros(1)) | {b"shape": [2**31 - 1] * 4}}},
            }
        ),
    ],
    ids=["list", "map", "bytes", "episodes", "shape"],
)
def test_a_count_alone_allocates_nothing(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(RemoteProtocolError):
            MSGPACK.decode(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


LONG = "x" * 100_000
ENDED: dict[str, Any] = {"actions": [1], "rewards": [1], "terminated": True, "truncated": True}


@pytest.mark.parametrize(
    "told",
    [
        {"type": LONG},
        {"type": "EPISODES", "episodes": [{LONG: LONG}] * 3},
        {"type": "EPISODES", "episodes": [ENDED | {"id_": LONG, "obs": [[1]]}]},
        {"type": "SET_STATE", "weights_seq_no": 1, "state": {"rl_module": {LONG: 1}}},
        {"type": "SET_STATE", "weights_seq_no": LONG, "onnx_file": "AAAA"},
    ],
    ids=["type", "keys", "id", "layer", "number"],
)
def test_an_error_about_a_large_message_does_not_repeat_it(told: Any) -> None:
    body = orjson.dumps(told)
    server = ServerMachine(CONFIG)
    with pytest.raises(RemoteProtocolError) as caught:
        server.receive(header(len(body)) + body)
    assert len(str(caught.value)) < 1000


# --- streams -------------------------------------------------------------------------------------------------------

FRAMED = st.builds(lambda body: header(len(body)) + body, BODIES)
STREAMS = st.lists(
    st.one_of(FRAMED, FRAMED, st.sampled_from(REAL), st.binary(max_size=20)), min_size=1, max_size=4
).map(b"".join)
CUTS = st.lists(st.integers(1, 400), max_size=6)


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    made, place = [], 0
    for length in cuts:
        made.append(stream[place : place + length])
        place += length
    return [*made, stream[place:]]


def exchange(number: int, machine: ClientMachine) -> Exchange[Any]:
    batch = EpisodesAndGetState((episode(3),))
    match number:
        case 0:
            return greet(machine)
        case 1:
            return get_config(machine)
        case 2:
            return get_state(machine)
        case 3:
            return learn(machine, [batch])
        case 4:
            return deliver(machine, [Episodes((episode(3),))])
        case _:
            return learn(machine, [Episodes((episode(3),)), batch])


@given(DIALECT, STREAMS, CUTS, st.integers(0, 5))
def test_any_server_leaves_the_client_with_a_result_or_a_clear_error(
    dialect: Dialect, stream: bytes, cuts: list[int], asked: int
) -> None:
    machine = ClientMachine(dialect, largest=100_000)
    machine.receive(dialect.encode(Pong()), 0.0)
    machine.begin(exchange(asked, machine), 0.0)
    now = 0.0
    for piece in pieces(stream, cuts):
        now += 0.5
        with contextlib.suppress(RemoteProtocolError):
            machine.receive(piece, now)
        assert machine.lost is None or machine.finished
        for _ in range(5):
            deadline = machine.next_deadline()
            if deadline is not None and deadline <= now:
                machine.handle_timer(now)
    machine.handle_timer(now + 1e6)
    machine.eof(now + 1e6)
    assert machine.finished
    with contextlib.suppress(OspBridgeError):
        machine.result()


@given(STREAMS, CUTS)
def test_any_client_leaves_the_server_alive_or_with_a_clear_error(stream: bytes, cuts: list[int]) -> None:
    machine = ServerMachine(CONFIG, largest=100_000)
    for piece in pieces(stream, cuts):
        with contextlib.suppress(RemoteProtocolError):
            machine.receive(piece)
        while machine.next_event() is not None:
            pass
        while machine.state_wanted and machine.lost is None:
            with contextlib.suppress(RemoteProtocolError):
                machine.send_state(weights(1))
        assert all(type(data) in (bytes, bytearray) for data in machine.data_to_send())


# --- values are counted before any is made: a byte may stand for a list, and millions of these fill a memory -------


SIZES = st.sampled_from([0, 1, 2, 4, 8, 15, 16, 31, 32, 255, 256, 65_535, 65_536])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-300, 300),
    st.floats(),
    SIZES.map(lambda size: "x" * size),
    SIZES.map(bytes),
    SIZES.map(lambda size: msgspec.msgpack.Ext(3, bytes(size))),
)
SHORT = SIZES.filter(lambda size: size <= 256)
LISTS = SHORT.map(lambda size: [0] * size)
MAPS = SHORT.map(lambda size: {str(number): None for number in range(size)})
VALUES = st.recursive(
    st.one_of(SCALARS, LISTS, MAPS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=20), st.dictionaries(st.text(max_size=40), inner, max_size=20)
    ),
    max_leaves=20,
)


def count(value: Any) -> int:
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    if isinstance(value, dict):
        return 1 + sum(1 + count(inner) for inner in value.values())
    return 1


@given(VALUES)
@example([[0] * 65_535, [0] * 65_536])
@example({str(number): None for number in range(65_536)})
def test_values_of_msgpack_are_counted_as_they_are(value: Any) -> None:
    body = msgspec.msgpack.encode(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "LOOKED_AT", 0)
        patch.setattr(counting, "MOST_VALUES", count(value))
        counting.check_msgpack(body)
        patch.setattr(counting, "MOST_VALUES", count(value) - 1)
        with pytest.raises(Misfit, match="more than"):
            counting.check_msgpack(body)


@given(st.binary())
def test_of_other_bytes_nothing_is_said(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "LOOKED_AT", 0)
        counting.check_msgpack(data)
        counting.check_json(data)


@pytest.mark.parametrize(
    "dialect, body",
    [
        (MSGPACK, b"\x82\xa4type\xa4PING\xa1x\xdd\x00\x06\x00\x00" + b"\x90" * 0x60000),
        (JSON, orjson.dumps({"type": "PING", "x": [[]] * 0x60000})),
    ],
    ids=["msgpack", "json"],
)
def test_a_body_of_empty_lists_is_refused_before_it_is_read(
    dialect: Dialect, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(dialect.decode(body), Ping)
    monkeypatch.setattr(counting, "MOST_VALUES", 0x60000)
    with pytest.raises(RemoteProtocolError, match=f"{len(body)} bytes holds more than {0x60000} values"):
        dialect.decode(body)
