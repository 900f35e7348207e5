"""Owners of sessions that are killed in mid-step: their agents get free by themselves, and the next start plays.

``.ci/long kills`` ends many more, each in all ways.
"""

from __future__ import annotations

import signal

import pytest

from tests.session.killed_owners import KINDS, STEP_LIMIT, end_one, end_one_of_two

pytestmark = pytest.mark.loopback


@pytest.mark.parametrize("kind", KINDS)
def test_an_owner_that_is_killed_in_mid_step_leaves_no_agent_taken(kind: str) -> None:
    assert end_one(kind, signal.SIGKILL, seed=1) is not None


def test_an_owner_that_leaves_without_a_word_leaves_no_agent_taken() -> None:
    assert end_one("env", signal.SIGUSR1, seed=1) is not None


def test_the_next_start_plays_where_the_guardian_was_killed_first() -> None:
    assert end_one("vector", signal.SIGKILL, seed=1, guardian_first=True) == 0.0


def test_who_steps_with_a_client_that_is_killed_steps_on_or_is_told_why_not() -> None:
    took, reason = end_one_of_two(seed=1)
    assert took < STEP_LIMIT
    assert "limit" not in reason
