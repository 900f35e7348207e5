"""Answers of the clock that come within a later question: they end no episode, and nothing is believed for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import GetValue, ValueContent
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
DONE, VOTE = Code.NEXT_SIMULATION_STEP_COMPLETED, Code.NEXT_SIMULATION_STEP


class Late:
    """One client with the only agent of a simulator, which has made three steps.

    From here on each question about the clock meets a late answer first, for as long as there is one: ``shown``, in
    seconds.
    """

    def __init__(self, profile: Profile, *shown: float) -> None:
        self.pair = Pair(SyntheticWorld(1, 3), profile)
        self.client = self.pair.client(profile).connect()
        self.talk: Any = self.client.conversation
        self.client.do(self.talk.register(["agent"]))
        self.client.do(self.talk.reset(1))
        self.given = 0
        for _ in range(3):
            assert self.step() == self.true
        clock_id = self.talk.machine.clock.value_id
        assert clock_id is not None
        self.clock_id = clock_id
        self.shown = [
            ValueContent(self.clock_id, f"{seconds:g}").encode(end=profile.end_marker) for seconds in shown
        ]
        self.question = GetValue(self.clock_id).encode(end=profile.end_marker)
        self.asked = 0
        self.lost: set[Code] = set()
        self.pair.fault = self.fault

    def fault(self, datagram: Datagram) -> Iterable[float]:
        code = Code(datagram.data[0])
        if datagram.to_server and datagram.data == self.question:
            self.asked += 1
            if self.shown:
                self.pair.answer(self.client, self.shown.pop(0))
        if code in self.lost:
            self.lost.discard(code)
            return ()
        return (0.0,)

    def step(self) -> list[float]:
        self.given += 1
        inputs = np.full(1, self.given / 16, np.float32)
        self.true = expected(inputs, self.given, 3, seed=1).tolist()
        found: list[float] = self.client.do(self.talk.step({"agent": inputs}))["agent"].outputs.tolist()
        return found

    def begin_again(self, *shown: float) -> None:
        """The next episode; its steps meet these answers."""
        self.client.do(self.talk.reset(1))
        self.given = self.asked = 0
        self.shown = [
            ValueContent(self.clock_id, f"{seconds:g}").encode(end=self.pair.server.profile.end_marker)
            for seconds in shown
        ]

    @property
    def ran(self) -> int:
        return sum(entry["kind"] == "step" for entry in self.pair.ledger)


SHOWN = pytest.mark.parametrize("shown", [(0.01,), (0.02, 0.02), (0.0, 0.02, 0.01)], ids=len)
"""What it showed after steps before the latest, and before the first one."""
LOST = pytest.mark.parametrize("lost", [True, False], ids=["found_out", "verified"])


@BOTH
@SHOWN
@LOST
def test_a_late_answer_of_the_clock_ends_no_episode(
    profile: Profile, shown: tuple[float, ...], lost: bool
) -> None:
    late = Late(profile, *shown)
    if lost:
        late.lost.add(DONE)
    else:
        late.talk.machine.guarded = True
    for _ in range(3):
        assert late.step() == late.true
    assert not late.shown
    assert late.client.do(late.talk.audit()) == ""
    assert late.ran == late.given


@BOTH
@SHOWN
@pytest.mark.parametrize("disturbed", [True, False], ids=["disturbed", "undisturbed"])
def test_nor_does_one_that_comes_when_the_episode_is_over(
    profile: Profile, shown: tuple[float, ...], disturbed: bool
) -> None:
    late = Late(profile, *shown)
    late.talk.machine.disturbed = disturbed
    assert late.client.do(late.talk.audit()) == ""
    assert not late.shown
    assert late.talk.machine.clock.available


@BOTH
@SHOWN
def test_where_the_clock_answers_late_no_vote_is_given_twice(
    profile: Profile, shown: tuple[float, ...]
) -> None:
    """Its vote is lost, for all that can be seen; but datagrams of this session come late."""
    late = Late(profile, *shown)
    late.lost.add(VOTE)
    with pytest.raises(StepUncertain, match="the vote was not acknowledged") as caught:
        late.step()
    assert caught.value.by_network
    assert sum(datagram.data[0] == VOTE for datagram in late.pair.sent) == late.given


@BOTH
@LOST
@pytest.mark.parametrize("shown", [(), (0.01,), (0.0, 0.02)], ids=len)
def test_a_step_that_ran_twice_is_not_believed_for_a_late_answer_of_the_clock(
    profile: Profile, shown: tuple[float, ...], lost: bool
) -> None:
    late = Late(profile, *shown)
    if lost:
        late.lost.add(DONE)
    else:
        late.talk.machine.guarded = True
    late.pair.server.clock.steps += 1
    with pytest.raises(StepUncertain, match="the clock shows"):
        late.step()
    assert late.asked <= 4


@BOTH
@LOST
def test_a_clock_that_really_went_back_ends_the_episode(profile: Profile, lost: bool) -> None:
    late = Late(profile)
    if lost:
        late.lost.add(DONE)
    else:
        late.talk.machine.guarded = True
    late.pair.server.clock.restart()
    with pytest.raises(StepUncertain, match="the clock shows"):
        late.step()
    assert late.asked <= 4


BEFORE = pytest.mark.parametrize("shown", [(0.03,), (0.03, 0.03), (0.02, 0.03), (0.0, 0.03)], ids=str)
"""What it showed in the episode before, and behind the reset."""


@BOTH
@BEFORE
@LOST
def test_an_answer_of_before_the_reset_does_not_tell_how_long_a_step_takes(
    profile: Profile, shown: tuple[float, ...], lost: bool
) -> None:
    late = Late(profile)
    late.begin_again(*shown)
    if lost:
        late.lost.add(DONE)
    else:
        late.talk.machine.disturbed = True
    for _ in range(3):
        assert late.step() == late.true
    assert not late.shown
    assert late.talk.machine.clock.size == pytest.approx(0.01)
    assert late.client.do(late.talk.audit()) == ""


@BOTH
def test_nor_that_a_lost_vote_may_be_given_again(profile: Profile) -> None:
    """Where such an answer comes, a vote may come as late."""
    late = Late(profile)
    late.begin_again(0.03)
    late.lost.add(VOTE)
    with pytest.raises(StepUncertain, match="the vote was not acknowledged"):
        late.step()
    assert sum(datagram.data[0] == VOTE for datagram in late.pair.sent) == 3 + late.given


@BOTH
@pytest.mark.parametrize("disturbed, often", [(True, 3), (False, 1)], ids=["disturbed", "undisturbed"])
def test_the_first_steps_clock_is_read_once_where_nothing_disturbs(
    profile: Profile, disturbed: bool, often: int
) -> None:
    late = Late(profile)
    late.begin_again()
    late.talk.machine.disturbed = disturbed
    assert late.step() == late.true
    assert late.asked == often


@BOTH
def test_without_a_late_answer_the_clock_is_read_once_for_each_verified_step(profile: Profile) -> None:
    late = Late(profile)
    late.talk.machine.guarded = late.talk.machine.disturbed = True
    for _ in range(3):
        assert late.step() == late.true
    assert late.client.do(late.talk.audit()) == ""
    assert late.asked == 4
