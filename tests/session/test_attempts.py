"""How often a reset is tried."""

from __future__ import annotations

import pickle

import pytest

from ospbridge.errors import OspBridgeError, QueryTimeout, SessionLost, StepUncertain
from ospbridge.session.attempts import BEGINNINGS, TRIES, Attempts, costs_nothing

GONE = SessionLost("it is gone")
IN_DOUBT = StepUncertain("it cannot be told", repeats=True)


def tries(*errors: OspBridgeError) -> int:
    """So many there are of one reset, while these errors come again and again."""
    attempts = Attempts()
    for number in range(1, 100):
        if not attempts.go_on(errors[(number - 1) % len(errors)]):
            return number
    raise AssertionError("for ever")


@pytest.mark.parametrize(
    "error", [GONE, QueryTimeout("silence", hint="wait"), StepUncertain("it cannot be told")]
)
def test_a_lost_session_is_rebuilt_once(error: OspBridgeError) -> None:
    assert tries(error) == TRIES == 2
    assert not costs_nothing(error)


def test_where_the_network_repeats_datagrams_there_are_more() -> None:
    assert tries(IN_DOUBT) == BEGINNINGS
    assert costs_nothing(IN_DOUBT)


def test_both_are_counted_for_themselves() -> None:
    assert tries(IN_DOUBT, IN_DOUBT, GONE) == 6


def test_whether_it_costs_something_outlives_another_process() -> None:
    there = pickle.loads(pickle.dumps(IN_DOUBT))
    assert costs_nothing(there)
    assert there.hint == IN_DOUBT.hint
