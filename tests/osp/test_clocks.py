"""Clocks that tell less than they might: few digits, another pace than the steps', resets that do not zero them.

Where a clock counts steps, episodes that were given up are looked back at with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.osp.client.clock import SIMULATION_TIME, Moved, StepClock
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ValueContent
from ospbridge.osp.profile import NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Pair
from tests.osp.playing import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable


class Odd(Pair):
    """Whose clock shows what ``shows`` makes of the time and of the number of steps that ever ran."""

    def __init__(
        self, profile: Profile, shows: Callable[[float, int], str], *, time_step: float = 0.01
    ) -> None:
        self.shows = shows
        super().__init__(SyntheticWorld(2, 3, time_step=time_step), profile)
        self.time_step = time_step
        self.player: Client = self.client().connect()
        self.player.do(self.player.conversation.register(["agent"]))

    def _to_client(self, handler_id: int, data: bytes) -> None:
        clock = self.player.conversation.machine.clock.value_id if hasattr(self, "player") else 0
        if data[0] == Code.VALUE and clock and int.from_bytes(data[1:5], "little") == clock:
            kinds = [entry["kind"] for entry in self.ledger]
            since = kinds[::-1].index("reset") if "reset" in kinds else len(kinds)
            text = self.shows(since * self.time_step, kinds.count("step"))
            data = ValueContent(clock, text).encode(end=data.endswith(b"x"))
        super()._to_client(handler_id, data)

    def begin(self, steps: int, seed: int = 1) -> None:
        self.player.do(self.player.conversation.reset(seed))
        self.go_on(steps)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.player.do(self.player.conversation.step({"agent": np.zeros(2, np.float32)}))

    def play(self, steps: int) -> str:
        """A reset and steps; what the audit says."""
        self.begin(steps)
        return self.player.do(self.player.conversation.audit())

    def doubt(self) -> str:
        """What a reset would tell of the episode that it gives up."""
        told: str = self.player.do(self.player.conversation.look_back())
        return told

    def notices(self) -> list[str]:
        told = [notice.text for notice in self.player.conversation.machine.notices]
        self.player.conversation.take_notices()
        return told


@pytest.mark.parametrize(
    "time_step, shown",
    [(1 / 60, "{:.2f}"), (1 / 60, "{:.3f}"), (0.0125, "{:.2f}"), (0.004, "{:.2f}"), (0.01, "{:.6f}")],
)
def test_a_clock_of_few_digits_casts_no_doubt_on_an_episode(time_step: float, shown: str) -> None:
    pair = Odd(NERD, lambda time, _: shown.format(time), time_step=time_step)
    assert [pair.play(steps) for steps in (3, 300)] == ["", ""]


@pytest.mark.parametrize("shown", ["{:g}", "{:.3f}"])
def test_a_clock_with_a_decimal_comma_counts_steps(shown: str) -> None:
    pair = Odd(NERD, lambda time, _: shown.format(time).replace(".", ","), time_step=0.05)
    assert [pair.play(20) for _ in range(3)] == [""] * 3
    assert pair.notices() == []
    pair.shows = lambda time, _: shown.format(time + 0.05 * (time > 0.5)).replace(".", ",")
    assert pair.play(20) == "20 steps were given, the clock shows 21"


@BOTH
@pytest.mark.parametrize("text", ["0", "7.5"])
def test_a_clock_that_stands_still_is_done_without(profile: Profile, text: str) -> None:
    pair = Odd(profile, lambda *_: text)
    assert pair.play(3) == ""
    assert [n for n in pair.notices() if SIMULATION_TIME in n and "cannot tell their number" in n]
    assert pair.play(3) == ""
    assert pair.notices() == []


@BOTH
def test_a_clock_that_advances_unevenly_is_done_without(profile: Profile) -> None:
    pair = Odd(profile, lambda time, _: repr(time * (1.0 + time)), time_step=0.1)
    assert pair.play(7) == ""
    assert [n for n in pair.notices() if "cannot tell their number" in n]


@BOTH
def test_a_clock_that_a_reset_does_not_zero_counts_steps_all_the_same(profile: Profile) -> None:
    pair = Odd(profile, lambda _, steps: repr(steps * 0.01))
    for steps in (3, 5, 0, 4):
        assert pair.play(steps) == ""
    assert pair.player.conversation.machine.clock.outlasts_resets
    assert [entry["kind"] for entry in pair.ledger].count("reset") == 4


# --- what a clock reads, and what that says ------------------------------------------------------------------------


def test_what_a_clock_prints_tells_how_far_it_is_rounded() -> None:
    clock = StepClock()
    read = [
        (clock.read(text), clock.resolution) for text in ("0.05", "1.00", "1.25", "1.2345", "1,20", "1e-2")
    ]
    assert read == [(0.05, 0.0), (1.0, 0.01), (1.25, 0.01), (1.2345, 0.0), (1.2, 0.01), (0.01, 0.0)]
    assert np.isnan([clock.read("1,234.5"), clock.read("soon")]).all()


def test_the_clock_compares_by_difference_because_a_first_step_zeroes_it() -> None:
    clock = StepClock()
    assert clock.judge(1.0) is Moved.UNKNOWN
    clock.start(3.0)
    assert clock.judge(3.0) is Moved.NO
    assert clock.judge(0.01) is Moved.ONCE
    clock.believe(0.01)
    assert (clock.base, clock.count, clock.size) == (0.01, 0, None)


def test_the_clock_counts_steps_once_it_knows_their_size() -> None:
    clock = StepClock()
    clock.start(0.0)
    clock.believe(0.01)
    assert [clock.judge(at) for at in (0.01, 0.02, 0.03)] == [Moved.NO, Moved.ONCE, Moved.OTHERWISE]
    clock.believe(None)
    assert clock.steps_shown(0.0700000000000001) == 7


# --- episodes whose end nobody waited for, when the next reset looks back at them ----------------------------------


def abandoned(profile: Profile, *, steps: int) -> Odd:
    """So many steps into its second episode."""
    pair = Odd(profile, lambda time, _: f"{time:g}")
    assert pair.play(3) == ""
    pair.begin(steps, 2)
    return pair


@BOTH
def test_one_whose_steps_are_fewer_than_the_clock_shows_is_in_doubt_until_the_reset(profile: Profile) -> None:
    assert abandoned(profile, steps=5).doubt() == ""
    pair = abandoned(profile, steps=5)
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert pair.doubt() == "5 steps were given, the clock shows 6"
    pair.shows = lambda time, _: f"{time:g}"
    pair.begin(0, 3)
    assert pair.doubt() == ""
