"""The simulator's clock: how it counts steps, what it may print, and when a session does without it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from ospbridge.errors import ValueRejected
from ospbridge.interface import ValueEntry
from ospbridge.osp.clock import Moved, StepClock
from ospbridge.osp.codes import ITERATIONS, SIMULATION_TIME, TIME_STEP_SIZE, Code
from ospbridge.osp.messages import ValueContent, ValueIds
from ospbridge.osp.profile import NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Pair
from tests.osp.stage import BOTH, Stage, ack, brought

# --- counting ------------------------------------------------------------------------------------------------------


def clock_of(*, size: float | None = 0.01, announced: float | None = None, count: int = 0) -> StepClock:
    clock = StepClock()
    clock.start(0.0)
    clock.size, clock.announced, clock.count = size, announced, count
    return clock


def test_the_clock_says_whether_the_pending_step_ran() -> None:
    clock = clock_of(count=3)
    shown = {
        0.03: Moved.NO,
        0.04: Moved.ONCE,
        0.02: Moved.OTHERWISE,
        0.05: Moved.OTHERWISE,
        0.035: Moved.OTHERWISE,
    }
    assert {time: clock.judge(time) for time in shown} == shown
    assert clock.judge(float("inf")) is Moved.OTHERWISE
    clock.count += 1
    assert clock.judge(0.04) is Moved.NO
    for unknown in (clock_of(), clock_of()):
        assert unknown.judge(None) is Moved.UNKNOWN
        unknown.start(None)
        assert unknown.judge(0.01) is Moved.UNKNOWN


def test_before_the_size_of_a_step_is_known_any_other_time_is_one_step() -> None:
    clock = clock_of(size=None)
    clock.start(3.0)
    assert not clock.ready
    assert [clock.judge(at) for at in (3.0, 0.01, 7.0)] == [Moved.NO, Moved.ONCE, Moved.ONCE]


def test_the_size_is_the_announced_one_where_the_first_step_confirms_it() -> None:
    for took, size in ((0.01, 0.01), (0.0124, 0.01), (0.0076, 0.01), (0.0126, None), (0.02, None)):
        clock = clock_of(size=None, announced=0.01)
        clock.count += 1
        assert clock.confirm(took)
        assert clock.size == size, took
        assert clock.ready == (size is not None)


def test_else_it_is_what_two_steps_agree_on_and_uneven_ones_have_none() -> None:
    for second, size in ((0.06, 0.03), (0.05, 0.025), (0.09, None), (0.04, 0.01), (0.03, None)):
        clock = clock_of(size=None, announced=0.01)
        clock.count += 1
        assert clock.confirm(0.03)
        clock.count += 1
        assert clock.confirm(second) == (size is not None)
        assert clock.size == size, second


def test_the_very_first_step_of_a_world_may_zero_its_clock() -> None:
    clock = clock_of(size=None, announced=0.01)
    clock.start(3.0)
    clock.count += 1
    assert clock.confirm(0.01)
    assert (clock.base, clock.count, clock.size, clock.steps) == (0.01, 0, None, 1)


def test_a_number_of_steps_that_is_not_expected_must_be_shown_exactly() -> None:
    """The simulator prints 1/60 as 0.0166, or the clock prints two digits only."""
    assert clock_of(size=0.0166, count=60).steps_shown(1.0) == 60
    assert clock_of(size=0.0166, count=59).steps_shown(1.0) == 60, "one step more"
    assert clock_of(size=0.0125, count=3).steps_shown(0.04) == 3
    for shown, steps in ((0.0501, 5), (0.0499, 5), (0.0502, None), (0.0498, None), (0.0326, None)):
        assert clock_of(count=3).steps_shown(shown) == steps, shown


def test_steps_are_counted_through_all_episodes_of_a_session() -> None:
    clock = StepClock()
    for _ in range(3):
        clock.start(0.0)
        for _ in range(10):
            clock.count += 1
    clock.start(None)
    assert (clock.steps, clock.base) == (30, None)


# --- in a session --------------------------------------------------------------------------------------------------


def test_the_first_step_reads_the_clock_once_and_no_other_one_does() -> None:
    stage = Stage(steps=0)
    stage.machine.clock.size = None
    for number in range(3):
        stage.clock = 0.01 * (number + 1)
        stage.begin_step(0.5).give(ack(), brought(number / 8))
        stage.machine.result()
        assert len(stage.took(Code.GET_VALUE)) == (1 if number == 0 else 0)
    assert stage.machine.clock.size == 0.01


def test_a_first_step_whose_time_the_clock_does_not_show_yet_is_looked_at_twice() -> None:
    for shown, missing in (("0.01", False), ("0", True)):
        stage = Stage(steps=0)
        stage.machine.clock.size = None
        texts = ["0", shown]
        stage.reads = lambda value_id, texts=texts: [ValueContent(value_id, texts.pop(0))]  # type: ignore[misc]
        stage.begin_step(0.5).give(ack(), brought(0.5)).wait(1)
        assert stage.machine.result().completions
        assert stage.machine.now == pytest.approx(0.1)
        assert stage.machine.clock.missing is missing


def test_what_is_announced_is_the_product_of_two_variables_where_there_are_both() -> None:
    for names, announced in (
        ({TIME_STEP_SIZE: "0.02", ITERATIONS: "3"}, 0.06),
        ({TIME_STEP_SIZE: "0.02"}, 0.02),
        ({ITERATIONS: "3"}, None),
        ({TIME_STEP_SIZE: "small", ITERATIONS: "3"}, None),
        ({TIME_STEP_SIZE: "0", ITERATIONS: "3"}, None),
    ):
        stage = Stage(steps=0)
        clock = stage.machine.clock
        clock.size = clock.announced = None
        clock.start(None)
        stage.clock = 7.0
        for at, name in enumerate((TIME_STEP_SIZE, ITERATIONS), start=20):
            if name in names:
                stage.machine.values.entries[name] = ValueEntry(at, name, "Double")
                stage.values[at] = names[name]
        stage.begin_step(0.5)
        while stage.sent and stage.sent[-1][1].CODE is Code.GET_VALUE_IDS:
            stage.sent.pop()
            stage.give(ValueIds(0))
        assert clock.announced == (announced and pytest.approx(announced))
        assert clock.base == 7.0


def test_a_clock_that_is_set_or_whose_steps_are_is_learned_anew_behind_an_audit() -> None:
    for name in (SIMULATION_TIME, TIME_STEP_SIZE):
        pair = Odd(NERD, lambda time, _: f"{time:g}")
        pair.begin(3)
        with suppress(ValueRejected):
            pair.player.do(pair.player.conversation.set(name, "0.02"))
        clock = pair.player.conversation.machine.clock
        assert (clock.size, clock.base) == (None, None)
        pair.shows = lambda time, _: f"{2 * time:g}"
        pair.go_on(2)
        assert clock.size == pytest.approx(0.02)
        pair.shows = lambda time, _: f"{2 * time + 0.02:g}"
        assert pair.doubt() == "2 steps were given, the clock shows 3"


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e308", "-1e308", "5e-324", "", "0x10", "T"])
def test_a_clock_that_reads_nonsense_is_no_crash(text: str) -> None:
    stage = Stage()
    stage.clock = None
    stage.values[5] = text
    stage.machine.foreign = frozenset({"agent9"})
    stage.begin_step(0.5).give(ack(), brought(0.25)).wait(30)
    assert stage.machine.finished
    if text in ("nan", "inf", "-inf", "0x10", "T"):
        assert stage.machine.clock.missing
        assert stage.machine.result().completions


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
        told: str = self.player.do(self.player.conversation.audit_previous())
        return told

    def said(self) -> int:
        """How often it was said that the clock is done without."""
        notices = [notice.text for notice in self.player.conversation.pop_notices()]
        return sum("does not advance evenly" in text for text in notices)


@pytest.mark.parametrize(
    "time_step, shown",
    [(1 / 60, "{:.2f}"), (1 / 60, "{:.3f}"), (0.004, "{:.2f}"), (0.01, "{:.6f}"), (0.0125, "{:.2f}")],
)
def test_a_clock_of_few_digits_casts_no_doubt_on_an_episode(time_step: float, shown: str) -> None:
    pair = Odd(NERD, lambda time, _: shown.format(time), time_step=time_step)
    assert [pair.play(steps) for steps in (3, 40, 300)] == [""] * 3
    # What is printed too coarsely is done without.
    assert pair.said() == (time_step == 0.004)


def test_a_clock_with_a_decimal_comma_counts_steps() -> None:
    pair = Odd(NERD, lambda time, _: f"{time:g}".replace(".", ","), time_step=0.05)
    assert [pair.play(20) for _ in range(3)] == [""] * 3
    pair.shows = lambda time, _: f"{time + 0.05 * (time > 0.5):g}".replace(".", ",")
    assert pair.play(20) == "20 steps were given, the clock shows 21"


@BOTH
@pytest.mark.parametrize("text", ["0", "7.5", "uneven"])
def test_a_clock_that_does_not_count_steps_is_done_without_and_that_is_said_once(
    profile: Profile, text: str
) -> None:
    uneven = text == "uneven"
    pair = Odd(profile, lambda time, _: repr(time * (1.0 + time)) if uneven else text, time_step=0.1)
    assert [pair.play(7) for _ in range(3)] == [""] * 3
    assert pair.player.conversation.machine.clock.missing
    assert pair.said() == 1


@BOTH
def test_a_clock_that_a_reset_does_not_zero_counts_steps_all_the_same(profile: Profile) -> None:
    pair = Odd(profile, lambda _, steps: repr(steps * 0.01))
    for steps in (3, 5, 1, 4):
        assert pair.play(steps) == ""
    assert not pair.player.conversation.machine.learned.resets_zero_clock
    assert pair.said() == 0
    pair.shows = lambda _, steps: repr((steps + (steps > 15)) * 0.01)
    assert pair.play(6) == "6 steps were given, the clock shows 7"


# --- episodes whose end nobody waited for, when the next reset looks back at them ----------------------------------


@BOTH
def test_an_abandoned_episode_with_a_step_too_many_is_in_doubt_until_the_reset(profile: Profile) -> None:
    pair = Odd(profile, lambda time, _: f"{time:g}")
    assert pair.play(3) == ""
    pair.begin(5, 2)
    assert pair.doubt() == ""
    pair.go_on(1)
    pair.shows = lambda time, _: f"{time + pair.time_step:g}"
    assert pair.doubt() == "1 step was given, the clock shows 2"
    pair.shows = lambda time, _: f"{time:g}"
    pair.begin(0, 3)
    assert pair.doubt() == ""


def test_an_audit_is_made_once_of_the_same_steps_and_looks_twice_where_too_few_are_shown() -> None:
    pair = Odd(NERD, lambda time, _: f"{time:g}")
    assert pair.play(5) == ""
    before = len(pair.sent)
    assert pair.player.do(pair.player.conversation.audit()) == ""
    assert len(pair.sent) == before
    pair.go_on(1)
    shown = iter(["0.05", "0.06"])
    pair.shows = lambda *_: next(shown)
    began = pair.now
    assert pair.doubt() == ""
    assert pair.now - began == pytest.approx(0.1, abs=0.01)
