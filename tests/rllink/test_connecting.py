"""When to connect again, and in which dialect."""

from __future__ import annotations

import itertools

import pytest

from ospbridge.rllink.connecting import LONGEST_PAUSE, LONGEST_REFUSED, Attempt, ConnectPlan, End
from ospbridge.rllink.dialects import DIALECTS, JSON, MSGPACK, Dialect
from ospbridge.rllink.timing import RECYCLING

BOTH = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


def plan(dialect: Dialect | None = None, jitter: float = 0.0) -> ConnectPlan:
    return ConnectPlan(dialect, jitter=lambda: jitter)


def test_a_server_that_closes_before_the_pong_is_tried_in_the_other_dialect_when_it_listens_again() -> None:
    attempts = plan()
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt() == Attempt(RECYCLING, JSON)
    attempts.greeted()
    assert attempts.dialect is JSON


@BOTH
def test_a_dialect_that_was_proven_is_remembered(dialect: Dialect) -> None:
    attempts = plan()
    if dialect is JSON:
        attempts.ended(End.CLOSED)
    attempts.greeted()
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt() == Attempt(RECYCLING, dialect)
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt().dialect is dialect


@BOTH
def test_a_dialect_that_was_given_is_the_only_one(dialect: Dialect) -> None:
    attempts = plan(dialect)
    for how in itertools.islice(itertools.cycle(End), 12):
        assert attempts.next_attempt().dialect is dialect
        attempts.ended(how)


def test_a_reset_says_nothing_of_the_dialect_unless_it_comes_again() -> None:
    attempts = plan()
    tried = []
    for how in (End.REFUSED, End.RESET, End.RESET, End.RESET, End.CLOSED):
        tried.append(attempts.next_attempt().dialect)
        attempts.ended(how)
    assert tried == [MSGPACK, MSGPACK, MSGPACK, JSON, MSGPACK]
    assert attempts.next_attempt().dialect is JSON


@pytest.mark.parametrize(
    "how, first, longest",
    [
        (End.REFUSED, 1.0, LONGEST_REFUSED),
        (End.CLOSED, RECYCLING, LONGEST_PAUSE),
        (End.RESET, RECYCLING, LONGEST_PAUSE),
        (End.SILENT, RECYCLING, LONGEST_PAUSE),
    ],
)
def test_pauses_double_up_to_a_limit(how: End, first: float, longest: float) -> None:
    attempts = plan()
    pauses = []
    for _ in range(12):
        attempts.ended(how)
        pauses.append(attempts.next_attempt().pause)
    assert pauses[0] == first
    assert pauses[1] == 2 * first
    assert pauses == sorted(pauses)
    assert pauses[-1] == longest


def test_a_pong_starts_the_count_anew() -> None:
    attempts = plan()
    for _ in range(8):
        attempts.ended(End.REFUSED)
    assert attempts.in_vain == 8
    attempts.greeted()
    assert attempts.in_vain == 0
    attempts.ended(End.CLOSED)
    assert attempts.next_attempt().pause == RECYCLING
    assert attempts.in_vain == 0


def test_jitter_only_lengthens() -> None:
    early, late = plan(jitter=0.0), plan(jitter=0.999)
    for attempts in (early, late):
        attempts.ended(End.CLOSED)
    assert RECYCLING == early.next_attempt().pause < late.next_attempt().pause < 1.2 * RECYCLING
