"""How often a reset is tried, and which sessions are rebuilt without counting."""

from __future__ import annotations

import pickle

import pytest

from ospbridge.errors import OspBridgeError, QueryTimeout, SessionLost, StepUncertain
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session.attempts import BEGINNINGS, TRIES, Attempts, costs_nothing

IN_DOUBT = StepUncertain("it cannot be told", by_network=True)


def tries(*free: bool) -> int:
    """So many there are of one reset, while they fail so again and again."""
    attempts = Attempts()
    for number in range(1, 100):
        if not attempts.go_on(free=free[(number - 1) % len(free)]):
            return number
    raise AssertionError("for ever")


def test_a_lost_session_is_rebuilt_once() -> None:
    assert tries(False) == TRIES == 2


def test_where_that_costs_nothing_more_often() -> None:
    assert tries(True) == BEGINNINGS


def test_both_are_counted_for_themselves() -> None:
    assert tries(True, True, False) == 6


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize(
    "error",
    [SessionLost("it is gone"), QueryTimeout("silence", hint="wait"), StepUncertain("it cannot be told")],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_repeated_costs_a_rebuild(error: OspBridgeError, profile: Profile) -> None:
    assert not costs_nothing(error, ClientMachine(profile))


@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
@pytest.mark.parametrize("listened", [False, True])
def test_a_step_in_doubt_since_datagrams_come_twice_costs_one_only_where_the_session_leaves_a_handler_behind(
    profile: Profile, listened: bool
) -> None:
    machine = ClientMachine(profile)
    machine.ever_registered_events = listened
    assert costs_nothing(IN_DOUBT, machine) == (not listened or profile.end_after_events_is_safe)
    assert costs_nothing(IN_DOUBT, machine) != (listened and profile is NERD)


def test_a_step_that_was_interrupted_costs_no_rebuild() -> None:
    error = StepUncertain(
        "an earlier step was interrupted or given up, and its vote may be outstanding", interrupted=True
    )
    assert costs_nothing(error, ClientMachine(DOCUMENT))


def test_what_repeated_it_outlives_another_process() -> None:
    there = pickle.loads(pickle.dumps(IN_DOUBT))
    assert there.by_network
    assert there.hint == IN_DOUBT.hint
