"""Servers that take their time: with a thread for each handler, which answer meanwhile, and with one for all.

What is slow is waited for, nothing is sent twice, and silence ends in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import BarrierStuck, SessionLost
from ospbridge.osp.client.asking import LAST_WORD
from ospbridge.osp.client.notices import Anomaly, WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck
from ospbridge.osp.profile import Profile
from ospbridge.osp.step.lateness import RULE, Lateness
from ospbridge.osp.timing import Limits
from tests.osp.playing import BOTH, DONE, LOST, PROMPT, RESETS, VOTE, Player

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.osp.pair import Datagram

STEP = frozenset({DONE})
ASKED = Code.RESET_SIMULATION


class Slow(Player):
    """``threaded``: only completions come ``late``; otherwise nothing that arrives meanwhile is looked at before."""

    def __init__(
        self,
        profile: Profile,
        codes: frozenset[Code] = frozenset(),
        late: float = 0.0,
        *,
        threaded: bool = True,
        limits: Limits | None = None,
    ) -> None:
        self.codes = codes
        self.late = late
        self.loses = False
        """The completion of the next reset."""
        self._threaded = threaded
        self._free_at = 0.0
        super().__init__(profile, limits=limits or Limits(query=2.0))
        self.pair.fault = self._fault

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        now, code = self.pair.now, datagram.data[0]
        if self.loses and not datagram.to_server and code in RESETS:
            self.loses = False
            return LOST
        if not datagram.to_server and code in self.codes:
            self._free_at = max(now, self._free_at) + self.late
            return (self.late,)
        if datagram.to_server and not self._threaded:
            return (max(0.0, self._free_at - now),)
        return PROMPT

    def notices(self) -> list[Any]:
        """Since this was looked at."""
        return list(self.talk.take_notices())

    def told_of_a_reset(self) -> bool:
        """That nobody here asked for, since notices were looked at."""
        return any(isinstance(notice, WorldReset) for notice in self.notices())

    @property
    def resets(self) -> int:
        return sum(entry["kind"] == "reset" for entry in self.pair.ledger)


class Rebuilding(Slow):
    """Acknowledges at once, and resets the world when it has been rebuilt: the next reset or step waits for that."""

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        now, code = self.pair.now, datagram.data[0]
        if datagram.to_server and code == ASKED:
            self._free_at = max(now, self._free_at) + self.late
            acknowledgement = ResetSimulationAck().encode(end=self.pair.server.profile.end_marker)
            self.pair.answer(self.client, acknowledgement)
        if datagram.to_server and code in {ASKED, VOTE}:
            return (max(0.0, self._free_at - now),)
        if not datagram.to_server and code == Code.RESET_SIMULATION_ACK:
            return LOST
        return super()._fault(datagram)


# --- resets --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("threaded", [True, False])
def test_a_reset_that_takes_two_seconds_is_voted_for_once(profile: Profile, threaded: bool) -> None:
    slow = Slow(profile, RESETS, 2.0, threaded=threaded)
    slow.begin(1)
    # Once it is known how long resets take, one that takes so long is nothing to note.
    assert slow.machine.lateness.reset_took == pytest.approx(2.0, abs=0.1)
    slow.notices()
    slow.reset()
    slow.pair.settle()
    assert not [notice for notice in slow.notices() if isinstance(notice, Anomaly | WorldReset)]
    assert slow.sent(ASKED) == slow.resets == 2
    assert slow.told(1) == ""


@BOTH
@pytest.mark.parametrize("stepped", [False, True])
def test_a_reset_that_is_completed_later_than_it_was_waited_for_is_learned_from(
    profile: Profile, stepped: bool
) -> None:
    slow = Slow(profile, RESETS)
    slow.begin(1)
    slow.late = 2.5
    slow.begin(stepped)
    slow.pair.settle(5.0)
    # Behind a step it may be anybody's.
    assert slow.told_of_a_reset() is stepped
    slow.step()
    for _ in range(2):
        slow.reset()
        slow.pair.settle(5.0)
        assert not slow.told_of_a_reset()
        slow.step()
    assert slow.sent(ASKED) == slow.resets == 4


@BOTH
@pytest.mark.parametrize("late", [1.5, 40.0])
def test_votes_are_not_given_again_while_the_clock_shows_that_the_reset_is_not_done(
    profile: Profile, late: float
) -> None:
    slow = Rebuilding(profile)
    slow.begin(3)
    slow.late = late
    for _ in range(2):
        assert slow.episode(1) == ""
    assert not slow.told_of_a_reset()
    assert slow.sent(ASKED) == slow.resets == 3


@BOTH
@pytest.mark.parametrize("late, limit", [(49.0, 60.0), (4.2, 5.0)])
def test_however_long_a_reset_took_a_later_one_whose_completion_is_lost_is_looked_at_in_time(
    profile: Profile, late: float, limit: float
) -> None:
    slow = Rebuilding(profile, limits=Limits(query=2.0, reset=limit))
    slow.begin(1)
    slow.late = late
    slow.begin(1)
    slow.late, slow.loses, resets = 0.0, True, slow.resets
    slow.begin(1)
    assert not slow.loses
    assert slow.resets == resets + 1


@BOTH
@pytest.mark.parametrize("late", [4.0, 9.0])
def test_votes_that_were_given_again_bring_two_resets_and_the_episode_begins_behind_both(
    profile: Profile, late: float
) -> None:
    slow = Rebuilding(profile, late=late)
    # The clock stands at 0 before and behind it.
    slow.reset()
    assert slow.resets == slow.sent(ASKED) > 1
    slow.steps(2)
    slow.pair.settle(60.0)
    assert not slow.told_of_a_reset()
    assert slow.told(0) == ""
    assert slow.machine.lateness.reset_took == pytest.approx(late, abs=0.5)
    slow.begin(1)
    assert not slow.told_of_a_reset()


@BOTH
def test_a_completion_for_each_agent_is_one_reset(profile: Profile) -> None:
    player = Player(profile, 3)
    player.pair.fault = lambda datagram: (
        (0.0, 1e-5, 2e-5) if not datagram.to_server and datagram.data[0] in RESETS else PROMPT
    )
    for _ in range(3):
        assert player.episode(5) == ""
        assert not [notice for notice in player.talk.take_notices() if isinstance(notice, WorldReset)]


# --- resets and steps ----------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("codes, steps", [(RESETS, 2), (STEP, 4)], ids=["reset", "step"])
def test_a_server_with_one_thread_may_work_for_longer_than_it_may_take_to_answer(
    profile: Profile, codes: frozenset[Code], steps: int
) -> None:
    slow = Slow(profile, codes, 7.0, threaded=False)
    assert slow.episode(steps) == ""
    assert slow.episode(1) == ""
    assert slow.sent(ASKED) == slow.resets == 2


def asked_of(player: Player, code: Code) -> tuple[Any, float]:
    """A reset or a step, and its limit."""
    if code == VOTE:
        return player.talk.step({"agent0": [0.5]}), player.machine.limits.step
    return player.talk.reset(2), player.machine.limits.reset


@BOTH
@pytest.mark.parametrize("code", [ASKED, VOTE])
def test_one_that_stays_silent_is_given_up_at_the_limit_of_what_it_was_asked_for(
    profile: Profile, code: Code
) -> None:
    player = Player(profile, limits=Limits())
    player.begin(1)
    voted: list[Datagram] = []

    def silent(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == code:
            voted.append(datagram)
        return LOST if voted else PROMPT

    player.pair.fault = silent
    exchange, limit = asked_of(player, code)
    began = player.pair.now
    with pytest.raises(SessionLost, match="fell silent in the middle of a") as caught:
        player.client.do(exchange)
    took = player.pair.now - began
    assert limit <= took < limit + LAST_WORD + 0.1
    assert f"for {took:.1f} s" in caught.value.message


@BOTH
@pytest.mark.parametrize("code", [ASKED, VOTE])
def test_one_that_falls_silent_when_the_limit_has_come_is_given_up_as_soon(
    profile: Profile, code: Code
) -> None:
    player = Player(profile, limits=Limits())
    player.begin(1)
    player.pair.server.controlled += 1  # somebody does not vote
    exchange, limit = asked_of(player, code)
    began = player.pair.now
    player.pair.fault = lambda _: LOST if player.pair.now - began > limit - 0.01 else PROMPT
    with pytest.raises(BarrierStuck, match="did not complete within"):
        player.client.do(exchange)
    assert player.pair.now - began < limit + LAST_WORD + 0.1


def test_what_one_session_learned_of_a_simulator_the_next_one_knows() -> None:
    before, now = Lateness(), Lateness()
    before.came(0.5)
    before.reset_ran(1.0, 3.0, completed=True)
    before.acknowledged_behind = RULE
    before.repeats = True
    before.answers_between_votes = False
    before.step_ran(0.25)
    before.acknowledged(0.125)
    now.learn_from(before)
    assert (now.behind, now.reset_took, now.step_took, now.quickest) == (0.5, 2.0, 0.25, 0.125)
    assert (now.acknowledges_last, now.repeats, now.answers_between_votes) == (True, True, False)
