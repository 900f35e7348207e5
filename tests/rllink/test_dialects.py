"""Messages into bytes and back, in both dialects; every spelling read; every misfit named."""

from __future__ import annotations

import base64
import gzip
import json
import tracemalloc
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest

from ospbridge.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError
from ospbridge.rllink import decoding
from ospbridge.rllink.decoding import DTYPES, Misfit, packed, read_array, read_number
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect, dialect_named, dialect_of
from ospbridge.rllink.messages import (
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
from tests.rllink.episodes import assert_equal, episode
from tests.rllink.recordings import body_of

MODEL = b"\x08\x09 a model " * 50


def body(dialect: Dialect, told: Any) -> bytes:
    return json.dumps(told).encode() if dialect is JSON else msgspec.msgpack.encode(told)


def plain(dialect: Dialect, array: Any) -> Any:
    """An array as a peer of that dialect writes it."""
    array = np.asarray(array)
    return array.tolist() if dialect is JSON else packed(array)


def json_episode(**changes: Any) -> dict[str, Any]:
    made = {
        "obs": [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]],
        "actions": [0, 1],
        "rewards": [1.0, 1.0],
        "is_terminated": True,
        "is_truncated": False,
        "action_dist_inputs": [[0.1, 0.2], [0.1, 0.2]],
        "action_logp": [-0.5, -0.5],
    }
    return {key: value for key, value in (made | changes).items() if value is not ...}


def decode_episode(**changes: Any) -> Message:
    return JSON.decode(body(JSON, {"type": "EPISODES", "episodes": [json_episode(**changes)]}))


# --- there and back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Ping(),
        Pong(),
        GetConfig(),
        GetState(),
        SetConfig(1000, True),
        SetConfig(1, False),
        SetConfig(7),
        SetConfig(7, False, server="a sink"),
        SetState(OnnxWeights(MODEL, 3)),
        SetState(OnnxWeights(MODEL, 0)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_comes_back_from_its_bytes(dialect: Dialect, message: Message) -> None:
    data = body_of(dialect.encode(message))
    assert dialect_of(data) is dialect
    assert dialect.decode(data) == message


def test_the_arrays_of_a_policy_come_back(dialect: Dialect) -> None:
    rng = np.random.default_rng(1)
    layers = {
        "net.0.weight": rng.normal(size=(8, 3)).astype(np.float32),
        "net.0.bias": rng.normal(size=8).astype(np.float32).T,
        "log_std": np.asfortranarray(rng.normal(size=(2, 2)).astype(np.float32)),
    }
    message = dialect.decode(body_of(dialect.encode(SetState(ModuleWeights(layers, 12)))))
    assert isinstance(message, SetState)
    assert isinstance(message.weights, ModuleWeights)
    assert message.weights.seq_no == 12
    assert list(message.weights.arrays) == list(layers)
    for name, array in layers.items():
        assert message.weights.arrays[name].dtype == np.float32
        assert np.array_equal(message.weights.arrays[name], array)


@pytest.mark.parametrize("kind", [Episodes, EpisodesAndGetState])
@pytest.mark.parametrize("action", [0, 3])
def test_experience_comes_back_bit_for_bit(dialect: Dialect, kind: type[Episodes], action: int) -> None:
    fragments = (
        episode(5, action=action),
        episode(1, action=action, terminated=False, truncated=True),
        episode(9, action=action, terminated=False, t_started=7, id="continued"),
    )
    message = dialect.decode(body_of(dialect.encode(kind(fragments))))
    assert type(message) is kind
    assert isinstance(message, Episodes)
    assert message.env_steps == 15
    for sent, got in zip(fragments, message.fragments, strict=True):
        assert_equal(sent, got, named=dialect is MSGPACK)


def test_a_pickle_travels_in_msgpack_only() -> None:
    message = SetConfig(pickled=b"\x80\x04N.")
    assert MSGPACK.decode(body_of(MSGPACK.encode(message))) == message
    with pytest.raises(LocalProtocolError, match="json cannot carry"):
        JSON.encode(message)


# --- spellings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["env_steps_per_sample", "env_steps", "timesteps"])
def test_the_size_of_a_batch_is_read_in_each_spelling(dialect: Dialect, key: str) -> None:
    assert dialect.decode(body(dialect, {"type": "SET_CONFIG", key: 500})) == SetConfig(500)


@pytest.mark.parametrize("said, name", [("x" * 200, "x" * 100), (7, None), (["a"], None)])
def test_a_name_that_a_server_gives_itself_is_text_of_limited_length(
    dialect: Dialect, said: Any, name: str | None
) -> None:
    told = body(dialect, {"type": "SET_CONFIG", "env_steps_per_sample": 5, "server": said})
    assert dialect.decode(told) == SetConfig(5, server=name)


@pytest.mark.parametrize(
    "terminated, truncated", [("is_terminated", "is_truncated"), ("terminated", "truncated")]
)
@pytest.mark.parametrize("observations", ["obs", "observations"])
def test_an_episode_is_read_in_each_spelling(
    dialect: Dialect, terminated: str, truncated: str, observations: str
) -> None:
    told = {
        observations: plain(dialect, np.ones((3, 2), np.float32)),
        "actions": plain(dialect, np.array([1, 0])),
        "rewards": plain(dialect, np.ones(2, np.float32)),
        terminated: False,
        truncated: True,
        "weights_seq_no": 4,
    }
    message = dialect.decode(
        body(dialect, {"type": "EPISODES", "episodes": [told], "env_steps": 2, "weights_seq_no": 3})
    )
    assert isinstance(message, Episodes)
    (fragment,) = message.fragments
    assert (fragment.terminated, fragment.truncated, fragment.steps) == (False, True, 2)
    assert (message.weights_seq_no, fragment.weights_seq_no) == (3, 4)


@pytest.mark.parametrize("key", ["id_", "id"])
def test_an_episode_is_named_in_each_spelling(dialect: Dialect, key: str) -> None:
    told = {
        "obs": [[0.0], [1.0]],
        "actions": [0],
        "rewards": [1.0],
        "terminated": True,
        "truncated": False,
        key: "seven",
    }
    message = dialect.decode(body(dialect, {"type": "EPISODES", "episodes": [told]}))
    assert isinstance(message, Episodes)
    assert [fragment.id for fragment in message.fragments] == ["seven"]


def test_an_array_that_does_not_fit_is_named_with_its_key() -> None:
    wrong = {b"nd": True, b"type": "<f4", b"kind": b"", b"shape": [2], b"data": b"1234"}
    for told, named in (
        ({"state": {"rl_module": {"the weight": wrong}, "weights_seq_no": 1}}, "the weight of <f4"),
        (
            {"state": {"rl_module": {"w": packed(np.ones(1, np.float32))}}, "weights_seq_no": wrong},
            "weights_seq_no of <f4",
        ),
    ):
        with pytest.raises(RemoteProtocolError, match=named):
            MSGPACK.decode(msgspec.msgpack.encode({"type": "SET_STATE", **told}))


@pytest.mark.parametrize("key", ["onnx_file", "mlir_file"])
@pytest.mark.parametrize("zipped", [True, False])
def test_a_model_is_read_in_each_spelling_zipped_or_not(dialect: Dialect, key: str, zipped: bool) -> None:
    data = gzip.compress(MODEL) if zipped else MODEL
    told = {"type": "SET_STATE", key: base64.b64encode(data).decode(), "weights_seq_no": 5}
    message = dialect.decode(body(dialect, told))
    assert message == SetState(OnnxWeights(MODEL, 5))


def test_weights_may_stand_under_the_name_of_an_only_policy_and_the_number_outside() -> None:
    layers = {"w": packed(np.ones(2, np.float64)), "n": packed(np.ones(1, np.int32))}
    told = {"type": "SET_STATE", "state": {"rl_module": {"default_policy": layers}}, "weights_seq_no": 9}
    message = MSGPACK.decode(msgspec.msgpack.encode(told))
    assert isinstance(message, SetState)
    assert isinstance(message.weights, ModuleWeights)
    assert message.weights.seq_no == 9
    assert all(array.dtype == np.float32 for array in message.weights.arrays.values())


def test_more_keys_than_we_know_do_no_harm() -> None:
    state = {"rl_module": {"w": packed(np.ones(1, np.float32))}, "weights_seq_no": 1, "env_to_module": {}}
    message = MSGPACK.decode(msgspec.msgpack.encode({"type": "SET_STATE", "state": state, "more": [1]}))
    assert isinstance(message, SetState)


def test_what_a_piece_repeats_of_the_one_before_is_left_out() -> None:
    told: dict[str, Any] = {
        "id_": "e",
        "is_terminated": False,
        "is_truncated": False,
        "t_started": 3,
        "t": 5,
    }
    for key, array in {
        "observations": np.arange(8, dtype=np.float32).reshape(4, 2),
        "actions": np.array([7, 8, 9]),
        "rewards": np.array([1, 2, 3], np.float32),
    }.items():
        told[key] = {"data": packed(array), "lookback": 1, "finalized": True, "space": None}
    message = MSGPACK.decode(msgspec.msgpack.encode({"type": "EPISODES", "episodes": [told]}))
    assert isinstance(message, Episodes)
    (fragment,) = message.fragments
    assert fragment.observations.tolist() == [[2, 3], [4, 5], [6, 7]]
    assert fragment.actions.tolist() == [8, 9]
    assert fragment.rewards.tolist() == [2, 3]


def test_a_type_of_another_release_is_unknown_and_no_error(dialect: Dialect) -> None:
    assert dialect.decode(body(dialect, {"type": "HELLO", "a": 1})) == Unknown("HELLO", ("type", "a"))


def test_a_dialect_is_found_by_its_name() -> None:
    assert dialect_named("json") is JSON
    assert dialect_named("msgpack") is MSGPACK
    assert dialect_named("auto") is None
    with pytest.raises(ConfigurationError, match="unknown dialect 'xml'"):
        dialect_named("xml")


# --- what does not fit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told, named",
    [
        ([], "a message must be a map, got list"),
        ({}, "a message: key type is missing, there are: none"),
        ({"type": 1}, "a message: type must be text, got int 1"),
        ({"type": "SET_CONFIG"}, "SET_CONFIG: key env_steps_per_sample or config is missing"),
        (
            {"type": "SET_CONFIG", "env_steps": "9"},
            "SET_CONFIG: env_steps_per_sample must be a count, got str '9'",
        ),
        ({"type": "SET_CONFIG", "env_steps": -1}, "must be a count, got int -1"),
        ({"type": "SET_CONFIG", "config": "text"}, "SET_CONFIG: config must be bytes, got str 'text'"),
        ({"type": "SET_STATE", "onnx_file": "AA=="}, "SET_STATE: key weights_seq_no is missing"),
        (
            {"type": "SET_STATE", "weights_seq_no": 1},
            "SET_STATE: key onnx_file or mlir_file or state is missing",
        ),
        (
            {"type": "SET_STATE", "weights_seq_no": 1, "onnx_file": "%%"},
            "SET_STATE: onnx_file must be base64",
        ),
        ({"type": "SET_STATE", "weights_seq_no": 1, "state": []}, "SET_STATE: state must be a map, got list"),
        (
            {"type": "SET_STATE", "weights_seq_no": 1, "state": {}},
            "SET_STATE: state: key rl_module is missing",
        ),
        ({"type": "SET_STATE", "weights_seq_no": 1, "state": {"rl_module": {}}}, "the weights are empty"),
        (
            {"type": "SET_STATE", "weights_seq_no": 1, "state": {"rl_module": {"w": "x"}}},
            "SET_STATE: state: rl_module: w must be an array, got str 'x'",
        ),
        ({"type": "EPISODES"}, "EPISODES: key episodes is missing"),
        ({"type": "EPISODES", "episodes": {}}, "EPISODES: episodes must be a list, got dict"),
        ({"type": "EPISODES", "episodes": [3]}, r"EPISODES: episodes\[0\] must be a map, got int 3"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_misfit_is_named_by_message_key_and_what_came(dialect: Dialect, told: Any, named: str) -> None:
    data = body(dialect, told)
    with pytest.raises(RemoteProtocolError, match=named) as caught:
        dialect.decode(data)
    assert caught.value.data == data
    assert caught.value.hint


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"obs": [[0.0], [1.0, 2.0]]}, "obs.* must be an array of numbers"),
        ({"obs": [["0", "1"]]}, "must hold numbers only, got str"),
        ({"obs": [[[1.0]]]}, "must hold numbers only, got list"),
        ({"obs": [[1.0], 2.0]}, r"\[1\] must be a list like"),
        ({"obs": 3.0}, "observations must be an array, got float 3.0"),
        ({"rewards": [[1.0]]}, "rewards must have 1 dimensions"),
        ({"actions": [18446744073709551615, 1]}, "64 bits"),
        ({"is_terminated": ...}, "key is_terminated or terminated is missing"),
        ({"is_terminated": "yes"}, "is_terminated must be true or false, got str 'yes'"),
        ({"t": 9}, "t must be 2, t_started and its 2 steps, got 9"),
        ({"extra_model_outputs": 3}, "extra_model_outputs must be a map"),
        ({"action_logp": {"data": [1.0], "lookback": 2}}, "lookback must be at most"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_misfit_of_an_episode_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(RemoteProtocolError, match=named):
        decode_episode(**changes)


@pytest.mark.parametrize("data", [b"", b"\xff\xff", b"{", b"\x81", b"NaN", b"[" * 100_000, b"\x91" * 100_000])
def test_a_body_that_is_not_of_the_dialect_is_a_clear_error(dialect: Dialect, data: bytes) -> None:
    with pytest.raises(
        RemoteProtocolError, match=f"dialect {dialect.name}|must be a map, got int 123"
    ) as caught:
        dialect.decode(data)
    assert "Ray" in caught.value.hint


def test_a_bomb_of_gzip_is_refused_before_it_bursts(
    dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding.unzipped, "__kwdefaults__", {"largest": 100_000})
    bomb = base64.b64encode(gzip.compress(bytes(5_000_000))).decode()
    with pytest.raises(RemoteProtocolError, match="larger than 100000 bytes when decompressed"):
        dialect.decode(body(dialect, {"type": "SET_STATE", "onnx_file": bomb, "weights_seq_no": 1}))


def test_a_model_may_be_as_large_as_the_limit_and_no_larger() -> None:
    zipped = gzip.compress(bytes(1000))
    assert decoding.unzipped(zipped, largest=1000) == bytes(1000)
    with pytest.raises(Misfit, match="larger than 999"):
        decoding.unzipped(zipped, largest=999)


def test_a_model_that_is_cut_off_or_bent_is_refused() -> None:
    zipped = gzip.compress(MODEL)
    with pytest.raises(Misfit, match="cut off"):
        decoding.unzipped(zipped[:-9])
    with pytest.raises(Misfit, match="gzip did not compress"):
        decoding.unzipped(zlib.compress(MODEL))


# --- arrays of msgpack_numpy, read and written without it ----------------------------------------------------------


def told(**changes: Any) -> dict[bytes, Any]:
    made: dict[str, Any] = {"nd": True, "type": "<f4", "kind": b"", "shape": [2], "data": bytes(8)}
    return {key.encode(): value for key, value in (made | changes).items() if value is not ...}


def over_the_wire(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (0, 4), (2, 1, 2), (1,) * 8])
def test_an_array_comes_back_from_the_wire(name: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(DTYPES[name])
    again = read_array(over_the_wire(packed(array)), "a")
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert np.array_equal(again, array)


def test_a_list_of_arrays_is_stacked() -> None:
    rows = [packed(np.full(2, number, np.float32)) for number in range(3)]
    assert read_array(over_the_wire(rows), "a").tolist() == [[0, 0], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    "value, named",
    [
        (told(kind=b"O", data=b"cos\nsystem\n"), "only kind '' is read"),
        (told(kind=b"V", type=[["a", "<f4"]]), "only kind '' is read"),
        (told(type="|O"), "must be one of <f2"),
        (told(type=">f4"), "must be one of <f2"),
        (told(type=["<f4"]), "must be one of <f2"),
        (told(type=...), "must be one of <f2"),
        (told(shape=[3]), "must have 12 bytes of data, got 8 bytes"),
        (told(shape=[2**31 - 1] * 8), "bytes of data, got 8 bytes"),
        (told(shape=[1] * 9), "a list of at most 8"),
        (told(shape=[-2]), "must be counts"),
        (told(shape=[True, 2]), "must be counts"),
        (told(shape=[2**31]), "must be counts"),
        (told(shape=2), "must be a list"),
        (told(data="12345678"), "got str"),
        (told(nd=1), "nd int 1"),
        (told(nd=False), "must have 4 bytes"),
        ([told(), told(shape=[1, 2])], r"a\[1\] must be like a\[0\]"),
        ([told(), told(type="<i4")], r"a\[1\] must be like a\[0\]"),
        ([told(), 3.0], r"a\[1\] must be an array"),
        ({"nd": True}, "must be an array"),
        ([{}], "must hold numbers only, got dict"),
        (["x" * 1000, "y"], "must hold numbers only, got str"),
        (None, "must be an array, got NoneType"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_anything_else_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(Misfit, match=named):
        read_array(value, "a")


def test_dimensions_that_numpy_cannot_count_are_refused_even_where_nothing_is_in_them() -> None:
    with pytest.raises(Misfit, match="no array can have"):
        read_array(told(shape=[0] + [2**31 - 1] * 7, data=b""), "a")


def test_texts_of_different_lengths_take_no_room() -> None:
    value = ["x" * 100_000, *("y" for _ in range(10_000))]
    tracemalloc.start()
    try:
        with pytest.raises(Misfit):
            read_array(value, "a")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_a_number_may_be_plain_or_packed() -> None:
    assert read_number(5, "n") == 5
    assert read_number({b"nd": False, b"type": "<f8", b"data": np.float64(0.5).tobytes()}, "n") == 0.5
    with pytest.raises(Misfit, match="n must be one number"):
        read_number(told(), "n")
