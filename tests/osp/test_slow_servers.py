"""Servers that take their time: what is slow is waited for, nothing is sent twice, and silence ends in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ospbridge.errors import SessionLost
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import Profile
from ospbridge.osp.step import LAST_WORD
from ospbridge.osp.timing import Limits
from tests.osp.pair import Datagram
from tests.osp.playing import ASKS_RESET, DONE, LOST, PROMPT, REQUEST, RESETS, Player
from tests.osp.stage import BOTH


class Slow(Player):
    """Its simulator of one thread works for so long at these completions, and reads nothing meanwhile."""

    def __init__(self, profile: Profile, codes: frozenset[Code], late: float, agents: int) -> None:
        self.codes = codes
        self.late = late
        self._free_at = 0.0
        super().__init__(profile, agents, limits=Limits(query=2.0))
        self.pair.fault = self._fault

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        if datagram.to_server:
            return (max(0.0, self._free_at - self.pair.now),)
        if datagram.data[0] in self.codes:
            self._free_at = max(self.pair.now, self._free_at) + self.late
            return (self._free_at - self.pair.now,)
        return PROMPT


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("late", [0.3, 1.3, 7.0])
@pytest.mark.parametrize("codes, steps", [(RESETS, 2), (frozenset({DONE}), 4)], ids=["reset", "step"])
def test_a_server_with_one_thread_may_work_for_longer_than_it_may_take_to_answer(
    profile: Profile, codes: frozenset[Code], steps: int, late: float, agents: int
) -> None:
    slow = Slow(profile, codes, late, agents)
    assert slow.episode(steps) == ""
    assert slow.episode(1) == ""
    assert slow.sent(ASKS_RESET) == 2 * agents
    assert slow.sent(REQUEST) == agents * (steps + 1)


@BOTH
@pytest.mark.parametrize("code", [ASKS_RESET, REQUEST])
def test_one_that_stays_silent_is_given_up_at_the_limit_of_what_it_was_asked_for(
    profile: Profile, code: Code
) -> None:
    player = Player(profile, limits=Limits())
    player.begin(1)
    asked: list[Datagram] = []

    def silent(datagram: Datagram) -> Iterable[float]:
        if datagram.data[0] == code:
            asked.append(datagram)
        return LOST if asked else PROMPT

    player.pair.fault = silent
    limits = player.machine.limits
    exchange: Any = player.talk.step({"agent0": [0.5]}) if code == REQUEST else player.talk.reset(2)
    limit = limits.step if code == REQUEST else limits.reset
    began = player.pair.now
    with pytest.raises(SessionLost, match="fell silent in the middle of a") as caught:
        player.client.do(exchange)
    took = player.pair.now - began
    assert limit <= took < limit + LAST_WORD + 0.1
    assert f"for {took:.1f} s" in caught.value.message
