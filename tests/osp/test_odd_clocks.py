"""Clocks that tell less than they might: few digits, another pace than the steps', resets that do not zero them."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.osp.client.clock import SIMULATION_TIME, Moved, StepClock
from ospbridge.osp.client.machine import ClientMachine
from ospbridge.osp.client.timekeeping import start_clock
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import GetValue, Message, ValueContent, ValueIds, ValueInfo
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Client, Datagram, Pair
from tests.osp.test_bursts import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)


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
        self.clock_id = 0

    def _to_client(self, handler_id: int, data: bytes) -> None:
        clock = self.player.conversation.machine.clock.value_id if hasattr(self, "player") else 0
        if data[0] == Code.VALUE and clock and int.from_bytes(data[1:5], "little") == clock:
            kinds = [entry["kind"] for entry in self.ledger]
            since = kinds[::-1].index("reset") if "reset" in kinds else len(kinds)
            text = self.shows(since * self.time_step, kinds.count("step"))
            data = ValueContent(clock, text).encode(end=data.endswith(b"x"))
        super()._to_client(handler_id, data)

    def play(self, steps: int) -> str:
        """A reset and steps; what the audit says."""
        self.player.do(self.player.conversation.reset(1))
        for _ in range(steps):
            self.player.do(self.player.conversation.step({"agent": np.zeros(2, np.float32)}))
        return self.player.do(self.player.conversation.audit())

    def notices(self) -> list[str]:
        told = [notice.text for notice in self.player.conversation.machine.notices]
        self.player.conversation.take_notices()
        return told


@BOTH
@pytest.mark.parametrize(
    "time_step, shown",
    [(1 / 60, "{:.2f}"), (1 / 60, "{:.3f}"), (0.0125, "{:.2f}"), (0.004, "{:.2f}"), (0.01, "{:.6f}")],
)
def test_a_clock_of_few_digits_casts_no_doubt_on_an_episode(
    profile: Profile, time_step: float, shown: str
) -> None:
    pair = Odd(profile, lambda time, _: shown.format(time), time_step=time_step)
    assert [pair.play(steps) for steps in (3, 100, 900)] == ["", "", ""]


@BOTH
@pytest.mark.parametrize("shown", ["{:g}", "{:.3f}"])
def test_a_clock_with_a_decimal_comma_counts_steps(profile: Profile, shown: str) -> None:
    pair = Odd(profile, lambda time, _: shown.format(time).replace(".", ","), time_step=0.05)
    assert [pair.play(20) for _ in range(4)] == [""] * 4
    assert pair.notices() == []
    pair.shows = lambda time, _: shown.format(time + 0.05 * (time > 0.5)).replace(".", ",")
    assert pair.play(20) == "20 steps were given, the clock shows 21"


@BOTH
def test_six_digits_tell_one_step_among_a_thousand(profile: Profile) -> None:
    pair = Odd(profile, lambda time, _: f"{time:.6f}")
    assert pair.play(10) == ""
    pair.shows = lambda time, _: f"{time + 0.01 * (time > 5.0):.6f}"
    assert pair.play(1000) == "1000 steps were given, the clock shows 1001"


def test_a_clock_may_be_the_value_with_the_id_0() -> None:
    machine = ClientMachine(DOCUMENT)

    def answers(data: bytes) -> list[Message]:
        if data[0] == Code.GET_VALUE_IDS:
            return [ValueIds(1), ValueInfo(0, 0, "Double", SIMULATION_TIME)]
        return [ValueContent(0, "0.5")] if data == GetValue(0).encode() else []

    run(machine, start_clock(machine), answers)
    assert machine.clock.available
    assert machine.clock.base == 0.5


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
def test_a_clock_on_the_wall_is_done_without_before_it_speaks_of_a_step(profile: Profile) -> None:
    """Where something was late or lost it would be believed: that the reset ran, and that the steps did not."""
    ticks = count(1)
    pair = Odd(profile, lambda *_: repr(next(ticks) * 0.003))
    machine = pair.player.conversation.machine
    machine.anomaly("as a server is spoken to that counts its lists from 1")
    assert [pair.play(7) for _ in range(3)] == [""] * 3
    assert not machine.clock.available
    assert [n for n in pair.notices() if "cannot tell their number" in n]
    assert [entry["kind"] for entry in pair.ledger] == (["reset"] + ["step"] * 7) * 3


@BOTH
def test_a_clock_that_runs_until_the_first_reset_counts_steps_behind_it(profile: Profile) -> None:
    ticks = count(1)
    pair = Odd(profile, lambda time, _: repr(time if pair.ledger else next(ticks) * 0.003))
    assert pair.play(7) == ""
    machine = pair.player.conversation.machine
    assert machine.clock.available
    assert machine.clock.count == 7
    assert not machine.disturbed


@BOTH
def test_a_clock_that_a_reset_does_not_zero_counts_steps_all_the_same(profile: Profile) -> None:
    pair = Odd(profile, lambda _, steps: repr(steps * 0.01))
    for steps in (3, 5, 0, 4):
        assert pair.play(steps) == ""
    assert pair.player.conversation.machine.clock.outlasts_resets
    assert pair.ledger[-1]["kind"] == "step"
    assert [entry["kind"] for entry in pair.ledger].count("reset") == 4


def test_what_a_clock_prints_tells_how_far_it_is_rounded() -> None:
    clock = StepClock()
    assert clock.read("0.05") == 0.05
    assert clock.resolution == 0.0
    clock.read("1.00")
    assert clock.resolution == 0.01
    clock.read("1.25")
    assert clock.resolution == 0.01
    clock.read("1.2345")
    assert clock.resolution == 0.0
    assert clock.read("1,20") == 1.2
    assert clock.resolution == 0.01
    assert np.isnan(clock.read("1,234.5"))
    assert clock.read("1e-2") == 0.01
    assert clock.resolution == 0.0
    assert np.isnan(clock.read("soon"))


def test_a_first_step_that_is_rounded_up_is_not_taken_for_two() -> None:
    clock = StepClock()
    clock.start(clock.read("0.00"))
    clock.size = 0.005
    clock.forget()
    clock.start(clock.read("0.00"))
    assert clock.judge(clock.read("0.01")) is Moved.ONCE


@BOTH
def test_a_repository_that_answers_nothing_is_not_asked_again_within_steps(profile: Profile) -> None:
    asked: list[int] = []

    def deaf(datagram: Datagram) -> Iterable[float]:
        if datagram.to_server and datagram.data[0] == Code.GET_VALUE_IDS:
            asked.append(datagram.number)
            return ()
        return (0.0,)

    pair = Pair(SyntheticWorld(2, 3), profile, fault=deaf)
    client = pair.client().connect()
    client.do(client.conversation.register(["agent"]))
    client.do(client.conversation.reset(7))
    client.do(client.conversation.step({"agent": [0.1, 0.5]}))
    until_then = len(asked)
    assert until_then
    for at in range(4):
        began = pair.now
        client.do(client.conversation.step({"agent": [0.1 * at, 0.5]}))
        assert pair.now - began < 1.0
    client.do(client.conversation.reset(8))
    assert len(asked) == until_then
