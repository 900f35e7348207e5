"""What an environment may say of its next action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ospbridge.envs.annotations import NextNote
from ospbridge.errors import LocalProtocolError


def test_what_was_said_is_sent_as_float32_and_must_be_said_anew() -> None:
    note = NextNote("cart")
    note.set(np.float64(-0.1), [0.1, 0.2], np.int64(7))
    said = note.note
    assert np.frombuffer(said.dist_inputs, "<f4").tolist() == np.array([0.1, 0.2], "f4").tolist()
    assert (np.float32(said.logp), said.weights_seq_no) == (np.float32(-0.1), 7)
    note.set(np.array([-0.5], np.float32), [0.1, 0.2])
    assert note.note.logp == -0.5, "of a policy that puts out rows"
    note.clear()
    with pytest.raises(LocalProtocolError, match=r"agent 'cart' .* nothing was said") as refused:
        _ = note.note
    assert "env.unwrapped.annotate(action_logp" in refused.value.hint


@pytest.mark.parametrize(
    "said, why",
    [
        ((float("nan"), [1.0], None), "action_logp of agent 'cart' must be finite"),
        ((0.0, np.array([np.nan], np.float32), None), "action_dist_inputs of agent 'cart' must be finite"),
        (([1.0, 2.0], [1.0], None), "must be one number"),
        (("much", [1.0], None), "action_logp of agent 'cart' must be numbers"),
        ((0.0, 1.0, None), "must be a vector of some numbers"),
        ((0.0, [], None), "must be a vector of some numbers"),
        ((0.0, [1.0], -1), "weights_seq_no of agent 'cart' must be a count"),
    ],
)
def test_what_cannot_be_right_is_told_at_once(said: tuple[Any, Any, Any], why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        NextNote("cart").set(*said)


@pytest.mark.parametrize("action", [0.5, [[0.5]], [float("nan")], ["left"]])
def test_an_action_as_it_was_drawn_is_a_vector_of_finite_numbers(action: Any) -> None:
    note = NextNote("cart")
    with pytest.raises(LocalProtocolError, match="action of agent 'cart' must be"):
        note.set(0.0, [1.0], action=action)
    note.set(0.0, [1.0], action=np.array([0.25]))
    assert np.frombuffer(note.note.drawn, "<f4").tolist() == [0.25]


def test_a_policy_puts_out_equally_many_numbers_each_time() -> None:
    note = NextNote("cart")
    note.set(0.0, [1.0, 2.0])
    with pytest.raises(LocalProtocolError, match="vector of 2 numbers"):
        note.set(0.0, [1.0])
