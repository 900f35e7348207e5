"""What is known of episodes that nobody waits for the end of, when the next reset looks back at them."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from tests.osp.test_odd_clocks import Odd

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)


def begun(profile: Profile, *, steps: int) -> Odd:
    """So many steps into its second episode."""
    pair = Odd(profile, lambda time, _: f"{time:g}")
    assert pair.play(3) == ""
    pair.player.do(pair.player.conversation.reset(2))
    go_on(pair, steps)
    return pair


def go_on(pair: Odd, steps: int) -> None:
    for _ in range(steps):
        pair.player.do(pair.player.conversation.step({"agent": np.zeros(2, np.float32)}))


def doubt(pair: Odd) -> str:
    told: str = pair.player.do(pair.player.conversation.look_back())
    return told


@BOTH
def test_one_whose_steps_the_clock_confirms_is_beyond_doubt(profile: Profile) -> None:
    assert doubt(begun(profile, steps=5)) == ""


@BOTH
def test_one_whose_steps_are_fewer_than_the_clock_shows_is_in_doubt_until_the_reset(profile: Profile) -> None:
    pair = begun(profile, steps=5)
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert doubt(pair) == "5 steps were given, the clock shows 6"
    pair.shows = lambda time, _: f"{time:g}"
    pair.player.do(pair.player.conversation.reset(3))
    assert doubt(pair) == ""


@BOTH
def test_one_that_an_audit_has_ended_is_not_looked_at_again(profile: Profile) -> None:
    pair = begun(profile, steps=5)
    assert pair.player.do(pair.player.conversation.audit()) == ""
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert doubt(pair) == ""
    go_on(pair, 1)
    assert doubt(pair) == "6 steps were given, the clock shows 7"


@BOTH
def test_one_as_long_as_an_audited_one_before_it_is_looked_at(profile: Profile) -> None:
    pair = begun(profile, steps=3)
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert doubt(pair) == "3 steps were given, the clock shows 4"


@BOTH
@pytest.mark.parametrize("since", [0, 2])
def test_a_world_that_was_reset_since_and_stepped_says_nothing_against_it(
    profile: Profile, since: int
) -> None:
    pair = begun(profile, steps=5)
    pair.shows = lambda time, _: f"{since * pair.time_step:g}"
    assert doubt(pair) == ""
    assert pair.player.conversation.machine.suspect == ""


@BOTH
def test_steps_that_never_ran_are_in_doubt_where_datagrams_were_disturbed(profile: Profile) -> None:
    pair = begun(profile, steps=5)
    pair.player.conversation.machine.anomaly("a completion came twice")
    pair.shows = lambda time, _: f"{3 * pair.time_step:g}"
    assert doubt(pair) == "5 steps were given, the clock shows 3"


@BOTH
def test_one_in_which_nothing_was_done_yet_is_not_looked_at(profile: Profile) -> None:
    pair = begun(profile, steps=2)
    pair.player.conversation.machine.clock.settle()
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert doubt(pair) == ""


@BOTH
def test_what_its_last_step_left_in_doubt_is_told(profile: Profile) -> None:
    pair = begun(profile, steps=5)
    pair.player.conversation.machine.suspect = "a completion came that belongs to no step of this session"
    assert doubt(pair) == pair.player.conversation.machine.suspect
