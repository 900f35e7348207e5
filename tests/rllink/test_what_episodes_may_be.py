"""Episodes and weights at the edge of what may be sent: what is still taken, and what is not."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import orjson
import pytest

from ospbridge.errors import LocalProtocolError, RemoteProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.arrays import packed, read_array
from ospbridge.rllink.checking import NOTHING_MORE, RLLIB, Needs, check_fragment
from ospbridge.rllink.cutting import MESSAGE, cut, split
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import Episodes, SetState
from ospbridge.rllink.weights import MlirWeights, ModuleWeights, OnnxWeights
from tests.rllink.episodes import assert_equal, episode
from tests.rllink.recordings import body_of, decoded

BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def box(size: int) -> BoxSpace:
    return BoxSpace(np.zeros(size, np.float32), np.ones(size, np.float32))


# --- arrays --------------------------------------------------------------------------------------------------------


def as_decoded(array: np.ndarray[Any, Any]) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(packed(array)))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_that_came_one_by_one_are_stacked(rows: int) -> None:
    array = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    np.testing.assert_array_equal(read_array([as_decoded(row) for row in array], "rows"), array)


@pytest.mark.parametrize("name", ["|O", "<c8", "f4", ">f4", ""])
def test_a_type_that_is_no_plain_number_is_refused(name: str) -> None:
    told = as_decoded(np.zeros(2, np.float32)) | {b"type": name}
    body = msgspec.msgpack.encode(
        {"type": "SET_STATE", "weights_seq_no": 1, "state": {"rl_module": {"w": told}}}
    )
    with pytest.raises(RemoteProtocolError, match="must be one of <f2"):
        MSGPACK.decode(body)


def test_numbers_that_lie_apart_in_memory_are_sent_as_they_are() -> None:
    whole = episode(6)
    apart = episode(
        3,
        observations=np.asfortranarray(whole.observations[:4]),
        actions=whole.actions[::2],
        rewards=whole.rewards[::2],
    )
    assert all(array.flags.c_contiguous for array in (apart.observations, apart.actions, apart.rewards))
    _, message = decoded(MSGPACK.encode(Episodes((apart,))))
    assert isinstance(message, Episodes)
    assert_equal(message.fragments[0], apart)


# --- weights -------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    "weights, key", [(MlirWeights(b"model", 3), "mlir_file"), (OnnxWeights(b"model", 4), "onnx_file")]
)
def test_a_model_is_sent_under_the_name_of_its_kind(dialect: Dialect, weights: Any, key: str) -> None:
    body = body_of(dialect.encode(SetState(weights)))
    told = orjson.loads(body) if dialect is JSON else msgspec.msgpack.decode(body)
    assert told.keys() == {"type", key, "weights_seq_no"}
    message = dialect.decode(body)
    assert isinstance(message, SetState)
    assert message.weights == weights


@BOTH
def test_weights_of_layers_come_back_with_their_number(dialect: Dialect) -> None:
    layers = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.bias": np.zeros(2, np.float32)}
    _, message = decoded(dialect.encode(SetState(ModuleWeights(layers, 0))))
    assert isinstance(message, SetState)
    assert isinstance(message.weights, ModuleWeights)
    assert message.weights.seq_no == 0
    assert message.weights.arrays.keys() == layers.keys()
    for name, array in layers.items():
        np.testing.assert_array_equal(message.weights.arrays[name], array)


# --- what is told of an episode besides its numbers ----------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("number", [0, 1, 2**62])
def test_who_lived_an_episode_and_by_which_weights_comes_along(dialect: Dialect, number: int) -> None:
    fragment = episode(
        2, agent="cart", simulator="10.0.0.1:45454", weights_seq_no=number, t_started=5, choices=7
    )
    _, message = decoded(dialect.encode(Episodes((fragment,))))
    assert isinstance(message, Episodes)
    (found,) = message.fragments
    assert (found.agent, found.simulator, found.weights_seq_no) == ("cart", "10.0.0.1:45454", number)
    assert (found.id, found.t_started, found.t, found.choices) == (fragment.id, 5, 7, 7)


@pytest.mark.parametrize(
    "said",
    [
        {"weights_seq_no": -1},
        {"weights_seq_no": True},
        {"agent": 3},
        {"choices": -1},
        {"choices": True},
        {"choices": "3"},
        "text",
        [],
    ],
)
def test_what_other_clients_keep_in_their_own_place_is_no_mistake(said: Any) -> None:
    told = {"obs": [[0], [1]], "actions": [0], "rewards": [1], "terminated": True, "truncated": False}
    message = JSON.decode(orjson.dumps({"type": "EPISODES", "episodes": [told | {"custom_data": said}]}))
    assert isinstance(message, Episodes)
    (found,) = message.fragments
    assert (found.weights_seq_no, found.agent, found.choices) == (None, "", None)


# --- the check before experience is sent ---------------------------------------------------------------------------

GOOD: list[tuple[dict[str, Any], Needs]] = [
    ({}, RLLIB),
    ({"action": 2}, RLLIB),
    ({"id": ""}, NOTHING_MORE),
    ({"action_dist_inputs": None, "action_logp": None}, NOTHING_MORE),
    ({}, Needs(observation_size=4, action=DiscreteSpace(3), dist_inputs_size=3)),
    ({"action": 2}, Needs(action=box(2), dist_inputs_size=4)),
    ({"actions": np.array([0, 2, 2])}, Needs(action=DiscreteSpace(3))),
]
BAD: list[tuple[dict[str, Any], Needs, str]] = [
    ({"id": ""}, RLLIB, "needs an id"),
    ({"t_started": -1}, RLLIB, "cannot start at step -1"),
    ({"actions": np.array([0.5, 0.5, 0.5], np.float32)}, RLLIB, "a row of numbers for each action"),
    ({"actions": np.array([0.5, 0.5, 0.5], np.float32)}, NOTHING_MORE, "a row of numbers for each action"),
    ({"action_logp": None}, RLLIB, "needs action_logp of every step"),
    ({"action_dist_inputs": None}, RLLIB, "needs action_dist_inputs of every step"),
    (
        {"action_dist_inputs": np.zeros((3, 0), np.float32)},
        NOTHING_MORE,
        "action_dist_inputs without numbers",
    ),
    (
        {"actions": np.array([0, 3, 1])},
        Needs(action=DiscreteSpace(3)),
        "row 1: action 3 is none of 3 choices",
    ),
    ({"actions": np.array([0, 1, -1])}, Needs(action=DiscreteSpace(3)), "row 2: action -1 is none of 3"),
    ({"action": 2}, Needs(action=DiscreteSpace(3)), r"must have actions of int64\[N\]"),
    (
        {"actions": np.array([[0], [1], [1]])},
        Needs(action=DiscreteSpace(3)),
        r"must have actions of int64\[N\]",
    ),
    ({"action": 2}, Needs(action=box(3)), r"must have actions of float32\[N, 3\]"),
    ({}, Needs(action=box(1)), r"must have actions of float32\[N, 1\]"),
    ({"actions": np.array([[0, 1]] * 3)}, Needs(action=box(2)), r"must have actions of float32\[N, 2\]"),
    ({}, Needs(observation_size=5), "must have 5 numbers a row of observations, there are 4"),
    ({}, Needs(dist_inputs_size=4), "must have 4 numbers a row of action_dist_inputs, there are 3"),
    ({"rewards": np.array([0, np.nan, 0])}, RLLIB, "row 1 of rewards: nan is not finite"),
    ({"action_logp": np.array([0, 0, -np.inf])}, RLLIB, "row 2 of action_logp: -inf is not finite"),
]


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("steps", [3, 1_000])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_number_that_is_none_is_found_wherever_it_is(steps: int, value: float) -> None:
    for row in (0, 1, steps // 2, steps - 1):
        rewards = np.zeros(steps, np.float32)
        rewards[row] = value
        with pytest.raises(LocalProtocolError, match=f"row {row} of rewards: .* is not finite"):
            check_fragment(episode(steps, rewards=rewards))


@pytest.mark.parametrize("value", [LARGEST, -LARGEST, LARGEST / 2, 1e-45, -0.0])
def test_the_largest_and_the_smallest_numbers_pass(value: float) -> None:
    check_fragment(episode(3, rewards=np.full(3, value, np.float32)))


@pytest.mark.parametrize("given, needs", GOOD, ids=range(len(GOOD)))
def test_an_episode_that_fits_passes(given: dict[str, Any], needs: Needs) -> None:
    check_fragment(episode(3, **given), needs)


@pytest.mark.parametrize("given, needs, told", BAD, ids=range(len(BAD)))
def test_an_episode_that_does_not_fit_is_named_with_what_is_wrong(
    given: dict[str, Any], needs: Needs, told: str
) -> None:
    fragment = episode(3, **given)
    with pytest.raises(LocalProtocolError, match=told) as caught:
        check_fragment(fragment, needs)
    assert caught.value.message.startswith(f"episode {fragment.id!r}")
    assert caught.value.hint


@pytest.mark.parametrize("steps, rows", [(3, 3), (3, 5)])
def test_an_episode_of_the_wrong_length_is_told_where_its_rows_part(steps: int, rows: int) -> None:
    fragment = episode(steps, observations=np.zeros((rows, 4), np.float32))
    with pytest.raises(LocalProtocolError, match=f"row {min(rows, 4)} is where they part: there are {rows}"):
        check_fragment(fragment)


# --- pieces and messages of a limited size -------------------------------------------------------------------------


@BOTH
def test_an_episode_and_messages_of_exactly_the_limit_are_not_cut(dialect: Dialect) -> None:
    fragments = [episode(4, seed=seed) for seed in range(3)]
    size = sum(dialect.size(fragment) for fragment in fragments)
    (message,) = split(fragments, dialect, await_weights=False, largest=size + MESSAGE)
    assert len(message.fragments) == 3
    two = split(fragments, dialect, await_weights=False, largest=size + MESSAGE - 1)
    assert [len(message.fragments) for message in two] == [1, 2], "the last one is as full as it can be"
    alone = dialect.size(fragments[0])
    three = split(fragments, dialect, await_weights=False, largest=alone + MESSAGE)
    assert [message.env_steps for message in three] == [4, 4, 4]
    assert len(split(fragments[:1], dialect, await_weights=False, largest=alone + MESSAGE - 1)) > 1


@BOTH
def test_only_where_pieces_cannot_be_joined_again_is_each_but_the_last_truncated(dialect: Dialect) -> None:
    whole = episode(400, terminated=True)
    messages = split([whole], dialect, await_weights=False, largest=dialect.size(whole) // 3 + MESSAGE)
    pieces = [piece for message in messages for piece in message.fragments]
    assert len(pieces) > 2
    assert {piece.truncated for piece in pieces[:-1]} == {not dialect.continues_episodes}
    assert (pieces[-1].terminated, pieces[-1].truncated) == (True, False)
    starts = [piece.t_started for piece in pieces]
    assert starts == [sum(piece.steps for piece in pieces[:at]) for at in range(len(pieces))]


@BOTH
@pytest.mark.parametrize("left_out", ["action_dist_inputs", "action_logp"])
def test_an_episode_without_what_a_policy_put_out_is_cut_all_the_same(
    dialect: Dialect, left_out: str
) -> None:
    without: dict[str, Any] = {left_out: None}
    first, second = cut(episode(5, **without), 2, continued=True)
    assert (first.steps, second.steps) == (2, 3)
    for piece in (first, second):
        assert getattr(piece, left_out) is None
        assert dialect.size(piece) >= len(dialect.encode(Episodes((piece,)))) - MESSAGE


@BOTH
def test_long_episodes_of_single_numbers_are_not_underestimated(dialect: Dialect) -> None:
    for steps in (1, 2, 30):
        fragment = episode(
            steps,
            observation=1,
            observations=np.full((steps + 1, 1), -1.2345678e-38, np.float32),
            actions=np.full((steps, 1), -1.2345678e-38, np.float32),
            rewards=np.full(steps, -1.2345678e-38, np.float32),
            action_dist_inputs=np.full((steps, 1), -1.2345678e-38, np.float32),
            action_logp=np.full(steps, -1.2345678e-38, np.float32),
        )
        assert len(dialect.encode(Episodes((fragment,)))) <= dialect.size(fragment) + MESSAGE
