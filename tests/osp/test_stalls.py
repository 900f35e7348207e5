"""Steps that stall are told once, with the command that cures them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ospbridge.osp.client.clock import StepClock
from ospbridge.osp.client.notices import Notices
from ospbridge.osp.client.stalls import Stalls

if TYPE_CHECKING:
    from collections.abc import Mapping

STALL = 0.0502
"""Seconds."""


def told(late: Mapping[int, float], *, curable: bool = True) -> list[str]:
    """What is said where these steps slept so long, by their number."""
    notices = Notices()
    stalls = Stalls(notices, "127.0.0.1:45454")
    stalls.curable = curable
    for step, slept in late.items():
        stalls.late(step, slept)
    return [notice.text for notice in notices]


def test_six_stalls_among_a_thousand_steps_are_told_once_with_their_cure() -> None:
    late = dict.fromkeys(range(100, 20_000, 100), STALL)
    (text,) = told(late)
    assert "completed 6 of its latest 600 steps more than 45 ms late" in text
    assert "`ospbridge tune 127.0.0.1:45454`" in text
    late = dict.fromkeys(range(1500, 20_000, 150), STALL)
    (text,) = told(late)
    assert "completed 6 of its latest 1,000 steps" in text


@pytest.mark.parametrize(
    "late",
    [
        dict.fromkeys(range(200, 20_000, 200), STALL),
        dict.fromkeys(range(90, 100), STALL),
        dict.fromkeys(range(100, 20_000, 100), 0.044),
    ],
    ids=["five in each thousand", "in the first hundred steps", "sooner than a stall ends"],
)
def test_what_may_happen_by_itself_is_not_told(late: dict[int, float]) -> None:
    assert not told(late)


def test_a_simulator_that_takes_its_time_for_half_of_its_steps_is_not_told_of() -> None:
    thinking = {step: STALL if step % 10 == 0 else 0.012 for step in range(0, 5000, 2)}
    assert not told(thinking)
    del thinking[4000]
    assert told(thinking)


def test_nothing_is_told_where_it_cannot_be_cured_from_here() -> None:
    assert not told(dict.fromkeys(range(100, 20_000, 100), STALL), curable=False)


def test_a_step_that_sleeps_several_times_counts_once() -> None:
    notices = Notices()
    stalls = Stalls(notices, "127.0.0.1:45454")
    stalls.curable = True
    for step in (1000, 1001, 1002, 1003, 1004):
        for slept in (0.02, STALL, 0.03, STALL):
            stalls.late(step, slept)
    assert not notices
    stalls.late(1005, STALL)
    assert len(notices) == 1


def test_steps_are_counted_through_all_episodes_of_a_session() -> None:
    clock = StepClock()
    for _ in range(3):
        clock.forget()
        clock.start(0.0)
        clock.believe(0.01)
        for _ in range(9):
            clock.believe(None)
    assert clock.steps == 30
    # The very first step of a simulator may zero its clock, and is a step all the same.
    clock.start(5.0)
    clock.believe(0.0)
    assert clock.steps == 31
