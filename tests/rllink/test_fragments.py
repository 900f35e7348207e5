"""Pieces of episodes: their arrays, the check before sending, cutting and batches."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import ConfigurationError, LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.rllink.batches import (
    MESSAGE,
    NOTHING_MORE,
    RLLIB,
    Needs,
    check_fragment,
    check_fragments,
    cut,
    split,
)
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect, packed_up, unpacked
from ospbridge.rllink.framing import HEADER_LENGTH
from ospbridge.rllink.messages import EpisodeFragment, Episodes, EpisodesAndGetState, Pong
from tests.rllink.episodes import assert_equal, episode
from tests.rllink.recordings import decoded


def box(size: int) -> BoxSpace:
    return BoxSpace(np.full(size, -1, np.float32), np.ones(size, np.float32))


def joined(pieces: list[EpisodeFragment]) -> EpisodeFragment:
    """The episode that was cut, and a check that each piece goes on where the one before ended."""
    for one, other in itertools.pairwise(pieces):
        assert other.id == one.id
        assert other.t_started == one.t
        assert other.observations[0].tobytes() == one.observations[-1].tobytes()
        assert not one.terminated
    first, last = pieces[0], pieces[-1]

    def whole(name: str) -> Any:
        arrays = [getattr(piece, name) for piece in pieces]
        return None if arrays[0] is None else np.concatenate(arrays)

    return EpisodeFragment(
        id=first.id,
        observations=np.concatenate([first.observations[:1], *(piece.observations[1:] for piece in pieces)]),
        actions=whole("actions"),
        rewards=whole("rewards"),
        action_dist_inputs=whole("action_dist_inputs"),
        action_logp=whole("action_logp"),
        terminated=last.terminated,
        truncated=last.truncated,
        t_started=first.t_started,
    )


# --- arrays --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"observations": np.zeros(3, np.float32)}, "observations must have 2 dimensions"),
        ({"observations": [[1.0], [1.0, 2.0]]}, "observations are no numbers"),
        ({"observations": np.array([["a"]])}, "observations are no numbers"),
        ({"rewards": np.float32(1)}, "rewards must have 1 dimensions"),
        ({"rewards": np.array([True])}, "rewards are no numbers"),
        ({"actions": np.zeros((1, 1, 1))}, "actions must have 1 or 2 dimensions"),
        ({"actions": np.array([True])}, "actions are no numbers"),
        ({"actions": np.array([2**64 - 1], np.uint64)}, "actions are no numbers"),
        ({"action_logp": np.zeros((1, 1))}, "action_logp must have 1 dimensions"),
        ({"action_dist_inputs": np.zeros(1)}, "action_dist_inputs must have 2 dimensions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_arrays_of_another_form_are_refused_with_the_episodes_name(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(LocalProtocolError, match=f"episode 'bad': {named}"):
        episode(1, id="bad", **changes)


# --- the check before sending --------------------------------------------------------------------------------------


def test_an_episode_that_fits_passes_also_with_numbers_from_outside_of_the_box() -> None:
    check_fragments([episode(4)], Needs(observation_size=4, action=DiscreteSpace(3), dist_inputs_size=3))
    check_fragments([episode(4, action=2, actions=np.full((4, 2), 7.5))], Needs(action=box(2)))
    check_fragments([episode(4, id="", action_dist_inputs=None, action_logp=None)], NOTHING_MORE)
    check_fragment(episode(3, rewards=[float(np.finfo(np.float32).max), 1e-45, -0.0]))


@pytest.mark.parametrize(
    "needs, changes, named",
    [
        (RLLIB, {"id": ""}, "needs an id"),
        (RLLIB, {"action_logp": None}, "needs action_logp of every step"),
        (RLLIB, {"action_dist_inputs": None}, "needs action_dist_inputs of every step"),
        (RLLIB, {"t_started": -1}, "cannot start at step -1"),
        (NOTHING_MORE, {"observations": np.zeros((4, 4))}, "needs 5 observations, row 4 .* there are 4"),
        (NOTHING_MORE, {"observations": np.zeros((6, 4))}, "needs 5 observations, row 5 .* there are 6"),
        (NOTHING_MORE, {"observations": np.zeros((5, 0))}, "observations without numbers"),
        (NOTHING_MORE, {"actions": np.zeros(3, int)}, "needs 4 actions, row 3"),
        (NOTHING_MORE, {"actions": np.zeros(4)}, "must have a row of numbers for each action"),
        (NOTHING_MORE, {"rewards": np.zeros(0)}, "has no steps"),
        (RLLIB, {"action_logp": np.zeros(3)}, "needs 4 action_logp, row 3"),
        (RLLIB, {"action_dist_inputs": np.zeros((4, 0))}, "action_dist_inputs without numbers"),
        (Needs(observation_size=3), {}, "must have 3 numbers a row of observations, there are 4"),
        (Needs(dist_inputs_size=2), {}, "must have 2 numbers a row of action_dist_inputs, there are 3"),
        (Needs(action=DiscreteSpace(2)), {"actions": [0, 1, 0, 2]}, "row 3: action 2 is none of 2 choices"),
        (Needs(action=DiscreteSpace(2)), {"actions": [0, -1, 0, 0]}, "row 1: action -1 is none of 2 choices"),
        (Needs(action=DiscreteSpace(2)), {"actions": np.zeros(4)}, r"must have actions of int64\[N\]"),
        (Needs(action=box(2)), {"actions": np.zeros((4, 3))}, r"must have actions of float32\[N, 2\]"),
        (Needs(action=box(2)), {"actions": np.zeros((4, 2), int)}, r"must have actions of float32\[N, 2\]"),
        (Needs(action=box(1)), {"actions": np.zeros(4)}, r"must have actions of float32\[N, 1\]"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_episode_is_named_with_its_row(needs: Needs, changes: dict[str, Any], named: str) -> None:
    bad = episode(4, **({"id": "bad"} | changes))
    with pytest.raises(LocalProtocolError, match=named) as caught:
        check_fragment(bad, needs)
    assert repr(bad.id) in caught.value.message
    assert "does not survive" in caught.value.hint


@pytest.mark.parametrize("name", ["observations", "rewards", "action_logp", "action_dist_inputs", "actions"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e39])
def test_a_number_that_is_not_finite_is_named_with_its_row(name: str, number: float) -> None:
    array = np.array(getattr(episode(4, action=2), name), dtype=np.float64)
    array[2] = number
    changes: dict[str, Any] = {name: array}
    with pytest.raises(LocalProtocolError, match=rf"episode 'bad', row 2 of {name}: .*(nan|inf)"):
        check_fragment(replace(episode(4, action=2, id="bad"), **changes))


# --- cutting -------------------------------------------------------------------------------------------------------


@given(st.integers(2, 30), st.data())
def test_the_pieces_of_an_episode_make_up_the_whole(steps: int, data: st.DataObject) -> None:
    whole = episode(steps, action=2, t_started=5)
    at = data.draw(st.integers(1, steps - 1))
    first, second = cut(whole, at, continued=True)
    assert (first.steps, second.steps) == (at, steps - at)
    assert not first.done
    assert_equal(joined([first, second]), whole)
    check_fragments([first, second])


def test_pieces_of_an_episode_without_annotations_have_none() -> None:
    for piece in cut(episode(4, action_dist_inputs=None, action_logp=None), 1, continued=True):
        assert piece.action_dist_inputs is None
        assert piece.action_logp is None


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=str)
def test_an_episode_of_two_steps_is_cut_where_it_must_be(dialect: Dialect) -> None:
    two = episode(2, observation=1000)
    one, _ = cut(two, 1, continued=dialect.continues_episodes)
    messages = split([two], dialect, await_weights=False, largest=dialect.size(one) + 200)
    assert [[piece.steps for piece in message.fragments] for message in messages] == [[1], [1]]


def test_the_size_of_an_episode_in_msgpack_is_that_of_its_arrays_and_a_frame() -> None:
    """One that is guessed too large is cut without need."""
    for long in (episode(5000, action=2), episode(5000)):
        written = len(MSGPACK.encode(Episodes((long,))))
        assert written <= MSGPACK.size(long) <= written + MSGPACK.FRAME


@pytest.mark.parametrize("parcel", [Pong(), Episodes((episode(2), episode(3)))], ids=["PONG", "two"])
def test_a_parcel_of_something_else_than_one_episode_is_damaged(parcel: Any) -> None:
    body = bytes(MSGPACK.encode(parcel))[8:]
    with pytest.raises(ConfigurationError, match="it holds no episode"):
        unpacked(zlib.crc32(body).to_bytes(4, "little") + body)


@pytest.mark.parametrize("at", [0, 4, -1, 9])
def test_a_cut_that_would_leave_nothing_is_refused(at: int) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be cut"):
        cut(episode(4), at, continued=True)


@pytest.mark.parametrize(
    "said",
    [
        *({"weights_seq_no": -1}, {"weights_seq_no": True}, {"agent": 3}, {"choices": -1}, {"choices": True}),
        *({"choices": "3"}, "text", []),
    ],
)
def test_what_other_clients_keep_in_their_own_place_is_no_mistake(said: Any) -> None:
    told = {"obs": [[0], [1]], "actions": [0], "rewards": [1], "terminated": True, "truncated": False}
    message = JSON.decode(orjson.dumps({"type": "EPISODES", "episodes": [told | {"custom_data": said}]}))
    assert isinstance(message, Episodes)
    (found,) = message.fragments
    assert (found.weights_seq_no, found.agent, found.choices) == (None, "", None)


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


# --- messages ------------------------------------------------------------------------------------------------------


@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    action=st.sampled_from([0, 2]),
    largest=st.integers(4_000, 20_000),
)
def test_every_message_stays_below_the_limit_and_nothing_is_lost(
    dialect: Dialect, lengths: list[int], action: int, largest: int
) -> None:
    recorded = [episode(length, seed=number, action=action) for number, length in enumerate(lengths)]
    messages = split(recorded, dialect, await_weights=False, largest=largest)
    assert all(len(dialect.encode(message)) - 8 <= largest for message in messages)
    assert all(type(message) is Episodes and message.fragments for message in messages)
    pieces: dict[str, list[EpisodeFragment]] = {}
    for message in messages:
        for piece in message.fragments:
            pieces.setdefault(piece.id, []).append(piece)
    for whole in recorded:
        assert_equal(joined(pieces[whole.id]), whole)


@pytest.mark.parametrize("await_weights", [False, True])
def test_an_episode_under_way_is_truncated_where_the_server_would_wait_for_its_end_for_ever(
    dialect: Dialect, await_weights: bool
) -> None:
    running = episode(6, terminated=False)
    (message,) = split([running, episode(3, seed=1)], dialect, await_weights=await_weights)
    sent, finished = message.fragments
    assert (sent.terminated, sent.truncated) == (False, not dialect.continues_episodes)
    assert (finished.terminated, finished.truncated) == (True, False)
    assert not running.truncated


@pytest.mark.parametrize("steps, least", [(0, 1), (5, 6)])
def test_weights_are_never_awaited_with_less_than_a_batch(dialect: Dialect, steps: int, least: int) -> None:
    fragments = [episode(steps)] if steps else []
    with pytest.raises(LocalProtocolError, match="expected a batch of") as caught:
        split(fragments, dialect, await_weights=True, least_steps=least)
    assert "never answers" in caught.value.hint


def test_a_batch_in_parts_asks_for_weights_with_the_last_one_only() -> None:
    messages = split(
        [episode(300, seed=number) for number in range(4)],
        MSGPACK,
        await_weights=True,
        least_steps=1200,
        largest=20_000,
    )
    assert [type(message) for message in messages[:-1]] == [Episodes] * (len(messages) - 1)
    assert type(messages[-1]) is EpisodesAndGetState
    assert len(messages) > 1
    assert sum(message.env_steps for message in messages) == 1200


def test_a_step_that_no_message_can_carry_is_refused(dialect: Dialect) -> None:
    with pytest.raises(LocalProtocolError, match="one step of episode 'wide'"):
        split([episode(3, observation=5000, id="wide")], dialect, await_weights=False, largest=9_000)


# --- fragments on a disk -----------------------------------------------------------------------------------------


def test_a_fragment_that_was_packed_up_is_sent_as_it_is_otherwise() -> None:
    before, after = episode(7, action=2), episode(7, action=2)
    packed_up(after)
    assert MSGPACK.encode(Episodes((before, after))) == MSGPACK.encode(Episodes((before, before)))
    assert JSON.encode(Episodes((before, after))) == JSON.encode(Episodes((before, before)))
    whole, pieces = (cut(one, 3, continued=True) for one in (before, after))
    assert MSGPACK.encode(Episodes(pieces)) == MSGPACK.encode(Episodes(whole))


ORIGIN: dict[str, Any] = {
    "t_started": 5,
    "weights_seq_no": 3,
    "agent": "räder/1",
    "simulator": "127.0.0.1:45454",
    "choices": 4,
}


@pytest.mark.parametrize("notes", [{}, {"action_dist_inputs": None, "action_logp": None}])
def test_a_fragment_comes_back_from_the_disk_and_in_both_dialects_with_where_it_comes_from(
    notes: dict[str, Any],
) -> None:
    sent = episode(7, id="ä", terminated=False, truncated=True, **ORIGIN, **notes)
    found = [unpacked(packed_up(sent))]
    for dialect in DIALECTS.values():
        told = dialect.encode(Episodes((sent,)))
        assert len(told) - HEADER_LENGTH <= dialect.size(sent) <= 2 * len(told) + 1500
        _, received = decoded(told)
        assert isinstance(received, Episodes)
        found += received.fragments
    for each in found:
        assert_equal(sent, each)
        assert {name: getattr(each, name) for name in ORIGIN} == ORIGIN


@pytest.mark.parametrize("at", [0, 5, -1])
def test_one_wrong_bit_is_found(at: int) -> None:
    parcel = bytearray(packed_up(episode()))
    parcel[at] ^= 1
    with pytest.raises(ConfigurationError, match="checksum"):
        unpacked(bytes(parcel))
    with pytest.raises(ConfigurationError, match="damaged"):
        unpacked(bytes(parcel)[:3])
