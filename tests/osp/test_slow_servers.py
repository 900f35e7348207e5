"""Servers that take their time: with a thread for each handler, which answer meanwhile, and with one for all.

What is slow is waited for, nothing is sent twice, and silence ends in time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import SessionLost
from ospbridge.osp.client.asking import LAST_WORD
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import ResetSimulationAck
from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from tests.osp.playing import BOTH, DONE, LOST, PROMPT, RESETS, VOTE, Player

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.osp.pair import Datagram

STEP = frozenset({DONE})
ASKED = Code.RESET_SIMULATION


class Slow(Player):
    """Its simulator is at completions of these ``codes`` for so long, and looks at nothing that arrives meanwhile."""

    def __init__(self, profile: Profile, codes: frozenset[Code] = frozenset(), late: float = 0.0) -> None:
        self.codes = codes
        self.late = late
        self._free_at = 0.0
        super().__init__(profile, limits=Limits(query=2.0))
        self.pair.fault = self._fault

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        if datagram.to_server:
            return (max(0.0, self._free_at - self.pair.now),)
        if datagram.data[0] in self.codes:
            self._free_at = max(self.pair.now, self._free_at) + self.late
            return (self.late,)
        return PROMPT

    def told_of_a_reset(self) -> bool:
        """That nobody here asked for, since notices were looked at."""
        return any(isinstance(notice, WorldReset) for notice in self.talk.take_notices())

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
        return LOST if not datagram.to_server and code == Code.RESET_SIMULATION_ACK else PROMPT


# --- resets --------------------------------------------------------------------------------------------------------


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
    slow = Slow(profile, codes, 7.0)
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
