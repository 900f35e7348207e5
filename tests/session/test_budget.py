"""How often a session may be rebuilt and a reset is tried, and what is said to who waits for that."""

from __future__ import annotations

import pytest

from ospbridge.errors import OspBridgeError, QueryTimeout, SessionLost, SimulatorNotFound, StepUncertain
from ospbridge.osp.client import ClientMachine
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.session import rebuild
from ospbridge.session.rebuild import BEGINNINGS, TRIES, Attempts, Awaiting, Budget, costs_nothing


def test_ten_at_once_and_no_more() -> None:
    budget = Budget(0.0)
    assert [budget.spend(1.0) for _ in range(11)] == [True] * 10 + [False]


def test_one_comes_back_a_minute() -> None:
    budget = Budget(0.0)
    for _ in range(10):
        budget.spend(0.0)
    assert not budget.spend(59.0)
    assert budget.spend(60.5)
    assert not budget.spend(61.0)
    # And no more than there were.
    assert [budget.spend(1e6) for _ in range(11)] == [True] * 10 + [False]


def test_what_a_simulator_that_was_away_has_cost_is_given_back() -> None:
    budget = Budget(0.0)
    for _ in range(20):
        assert budget.spend(0.0)
        budget.give_back()
    budget.give_back()
    assert [budget.spend(0.0) for _ in range(11)] == [True] * 10 + [False]


IN_DOUBT = StepUncertain("it cannot be told", by_network=True)


def tries(*free: bool) -> int:
    """So many there are of one reset, while they fail so again and again."""
    attempts = Attempts()
    for number in range(1, 100):
        if not attempts.again(free=free[(number - 1) % len(free)]):
            return number
    raise AssertionError("for ever")


def test_a_lost_session_is_rebuilt_once() -> None:
    assert tries(False) == TRIES == 2


def test_where_that_costs_nothing_more_often() -> None:
    assert tries(True) == BEGINNINGS
    # Both are counted for themselves.
    assert tries(True, True, False) == 6


@pytest.mark.parametrize(
    "error",
    [SessionLost("it is gone"), QueryTimeout("silence", hint="wait"), StepUncertain("it cannot be told")],
    ids=lambda error: type(error).__name__,
)
def test_what_nobody_repeated_costs_a_rebuild(error: OspBridgeError, profile: Profile) -> None:
    assert not costs_nothing(error, ClientMachine(profile))


@pytest.mark.parametrize("listened", [False, True])
def test_a_step_in_doubt_since_datagrams_come_twice_costs_one_only_where_the_session_leaves_a_handler_behind(
    profile: Profile, listened: bool
) -> None:
    machine = ClientMachine(profile)
    machine.events_used = listened
    assert costs_nothing(IN_DOUBT, machine) == (not listened or profile.end_after_events_is_safe)
    assert costs_nothing(IN_DOUBT, machine) != (listened and profile is NERD)


def test_a_step_that_was_interrupted_costs_no_rebuild() -> None:
    error = StepUncertain(
        "an earlier step was interrupted or given up, and its vote may be outstanding", interrupted=True
    )
    assert costs_nothing(error, ClientMachine(DOCUMENT))


ABSENT = SimulatorNotFound("nothing listens", hint="start it")


def test_a_wait_is_said_once_it_takes_a_while_and_then_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, said = 100.0, []
    monkeypatch.setattr(rebuild, "monotonic", lambda: now)
    wait = Awaiting(500.0, lambda text: said.append((now - 100.0, text)))
    while now < 600.0:
        wait.mention(ABSENT)
        now += 1.0
    assert [after for after, _ in said] == [3.0, 63.0, 183.0, 423.0]
    assert said[0][1] == "still waiting, for 497 s at most: nothing listens (start it)"
    assert wait.waited == 500.0


def test_an_error_behind_a_wait_tells_how_long_it_was() -> None:
    assert str(SimulatorNotFound("nothing listens", hint="start it").after(2.04)) == (
        "nothing listens, still so after 2.0 s (start it)"
    )
    assert SimulatorNotFound("nothing listens").after(0.9).message == "nothing listens"
