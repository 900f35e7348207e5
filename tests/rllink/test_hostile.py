"""An enemy's bytes: any give a message or RemoteProtocolError, nothing else, and take no more room than they have."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ospbridge.errors import RemoteProtocolError
from ospbridge.rllink import dialects
from ospbridge.rllink.client import MOST_ARRAYS, ClientMachine, StateArrived
from ospbridge.rllink.decoding import Misfit, packed
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.framing import header
from ospbridge.rllink.messages import Ping
from ospbridge.rllink.server import ServerMachine
from tests.rllink.pair import CONFIG

# --- bodies --------------------------------------------------------------------------------------------------------


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
        patch.setattr(dialects, "LOOKED_AT", 0)
        dialects.check_msgpack(body, count(value))
        with pytest.raises(Misfit, match="more than"):
            dialects.check_msgpack(body, count(value) - 1)


@pytest.mark.parametrize("value", [[], {}], ids=str)
def test_lists_and_maps_of_json_are_counted(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "LOOKED_AT", 0)
    body = orjson.dumps([value] * 9)
    dialects.check_json(body, 10)
    with pytest.raises(Misfit, match="more than 9 values"):
        dialects.check_json(memoryview(body), 9)


@given(st.binary())
def test_of_other_bytes_nothing_is_said(data: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dialects, "LOOKED_AT", 0)
        dialects.check_msgpack(data)
        dialects.check_json(data)


@pytest.mark.parametrize(
    "dialect, body",
    [
        (MSGPACK, b"\x82\xa4type\xa4PING\xa1x\xdd\x00\x06\x00\x00" + b"\x90" * 0x60000),
        (JSON, orjson.dumps({"type": "PING", "x": [[]] * 0x60000})),
    ],
    ids=["msgpack", "json"],
)
def test_a_body_of_empty_lists_is_refused_before_it_is_read(dialect: Dialect, body: bytes) -> None:
    assert isinstance(dialect.decode(body), Ping)
    with pytest.raises(RemoteProtocolError, match=f"{len(body)} bytes holds more than {0x60000} values"):
        dialect.decode(body, most_values=0x60000)


def weights_of(arrays: int, name: int = 8) -> bytes:
    """SET_STATE as a server may write it: empty arrays, with names of so many characters."""
    empty = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [0], b"data": b""}
    named = {f"{at:0{name}}": empty for at in range(arrays)}
    state = {"rl_module": named, "weights_seq_no": 1}
    return msgspec.msgpack.encode({"type": "SET_STATE", "state": state})


def test_weights_of_very_many_arrays_are_refused_before_they_are_read_and_the_option_is_told() -> None:
    def taken(body: bytes, most_arrays: int = MOST_ARRAYS) -> Any:
        machine = ClientMachine(MSGPACK, most_arrays=most_arrays)
        machine.receive(header(len(body)) + body, 0.0)
        (event,) = machine.events
        assert isinstance(event, StateArrived)
        return event.weights

    body = weights_of(300_000)
    assert len(body) > 14_000_000
    with pytest.raises(RemoteProtocolError, match="holds more than 21000 values") as caught:
        taken(body)
    assert "1000 arrays" in caught.value.hint
    assert "--rllink-most-arrays" in caught.value.hint
    assert len(taken(weights_of(6000), most_arrays=6000).arrays) == 6000
    with pytest.raises(RemoteProtocolError, match="a name of 1001 characters") as caught:
        taken(weights_of(1, name=1001))
    assert "most-arrays" not in caught.value.hint
    assert len(taken(weights_of(1, name=1000)).arrays) == 1
