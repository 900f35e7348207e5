"""Pieces of episodes: their arrays, the check before sending, cutting and batches."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace, Space
from ospbridge.rllink.checking import NOTHING_MORE, RLLIB, Needs, check_fragment, check_fragments
from ospbridge.rllink.cutting import cut, split
from ospbridge.rllink.dialects import DIALECTS, MSGPACK, Dialect
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.messages import Episodes, EpisodesAndGetState
from tests.rllink.episodes import assert_equal, episode

BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


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


def test_arrays_of_the_right_form_are_kept_without_a_copy() -> None:
    sent = episode(4, action=2)
    again = EpisodeFragment("x", sent.observations, sent.actions, sent.rewards)
    assert again.observations is sent.observations
    assert again.actions is sent.actions
    assert again.rewards is sent.rewards


def test_other_numbers_become_float32_and_int64() -> None:
    sent = EpisodeFragment("x", [[0, 1], [2, 3]], np.array([1], np.uint8), np.array([0.5]))  # type: ignore[arg-type]  # lists are taken too
    assert sent.observations.dtype == sent.rewards.dtype == np.float32
    assert sent.actions.dtype == np.int64


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


@pytest.mark.parametrize("action", [0, 2])
def test_a_good_episode_passes(action: int) -> None:
    space: Space = box(2) if action else DiscreteSpace(3)
    dist = 4 if action else 3
    check_fragment(episode(10, action=action), Needs(observation_size=4, action=space, dist_inputs_size=dist))


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


def test_one_bad_episode_among_good_ones_is_named() -> None:
    with pytest.raises(LocalProtocolError, match="episode 'bad' has no steps"):
        check_fragments([episode(3), episode(1, id="bad", rewards=np.zeros(0)), episode(3)])


@pytest.mark.parametrize("name", ["observations", "rewards", "action_logp", "action_dist_inputs", "actions"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e39])
def test_a_number_that_is_not_finite_is_named_with_its_row(name: str, number: float) -> None:
    array = np.array(getattr(episode(4, action=2), name), dtype=np.float64)
    array[2] = number
    changes: dict[str, Any] = {name: array}
    with pytest.raises(LocalProtocolError, match=rf"episode 'bad', row 2 of {name}: .*(nan|inf)"):
        check_fragment(replace(episode(4, action=2, id="bad"), **changes))


def test_what_only_records_needs_no_outputs_of_a_policy() -> None:
    check_fragment(episode(4, id="", action_logp=None, action_dist_inputs=None), NOTHING_MORE)


def test_sampled_actions_may_lie_outside_of_the_box() -> None:
    check_fragment(episode(4, action=2, actions=np.full((4, 2), 7.5)), Needs(action=box(2)))


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


def test_where_pieces_are_not_known_to_belong_together_the_first_is_truncated() -> None:
    first, second = cut(episode(4), 2, continued=False)
    assert (first.terminated, first.truncated) == (False, True)
    assert (second.terminated, second.truncated) == (True, False)


@pytest.mark.parametrize("at", [0, 4, -1, 9])
def test_a_cut_that_would_leave_nothing_is_refused(at: int) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be cut"):
        cut(episode(4), at, continued=True)


# --- messages ------------------------------------------------------------------------------------------------------


@BOTH
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


@BOTH
def test_a_size_is_estimated_from_above_and_not_by_much(dialect: Dialect) -> None:
    rng = np.random.default_rng(3)
    for steps, action, name in ((200, 4, "a"), (200, 0, "b"), (1, 0, "c"), (3, 1, "é" * 40)):
        numbers = rng.normal(size=(steps + 1, 16)) * 10.0 ** rng.uniform(-37, 37, (steps + 1, 16))
        sent = episode(steps, action=action, id=name, observations=numbers)
        size = len(dialect.encode(Episodes((sent,))))
        assert size <= dialect.size(sent) + 200
        assert dialect.size(sent) <= 2 * size + 1500


@BOTH
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


@BOTH
def test_a_batch_that_fits_is_one_message(dialect: Dialect) -> None:
    (message,) = split([episode(9), episode(3, seed=1)], dialect, await_weights=True, least_steps=12)
    assert type(message) is EpisodesAndGetState
    assert message.env_steps == 12


@BOTH
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


def test_the_last_part_holds_a_whole_batch_where_the_first_ones_may_be_learned_before_it() -> None:
    messages = split(
        [episode(100, seed=number) for number in range(9)],
        MSGPACK,
        await_weights=True,
        least_steps=300,
        largest=30_000,
    )
    assert len(messages) > 1
    assert messages[-1].env_steps >= 300


def test_parts_that_would_leave_the_server_waiting_for_ever_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="what comes last would be"):
        split(
            [episode(100, seed=number) for number in range(9)],
            MSGPACK,
            await_weights=True,
            least_steps=500,
            largest=20_000,
        )


@BOTH
def test_a_step_that_no_message_can_carry_is_refused(dialect: Dialect) -> None:
    with pytest.raises(LocalProtocolError, match="one step of episode 'wide'"):
        split([episode(3, observation=5000, id="wide")], dialect, await_weights=False, largest=9_000)


@BOTH
def test_a_message_that_no_header_can_announce_is_not_sent(dialect: Dialect) -> None:
    wide = np.zeros((2, 13_000_000), np.float32)
    with pytest.raises(LocalProtocolError, match="does not fit RLlink's header"):
        dialect.encode(Episodes((episode(1, observations=wide),)))
