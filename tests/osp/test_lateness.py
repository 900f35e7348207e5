"""Datagrams that come late: answers to old questions, completions behind the clock or before their acknowledgement.

Nothing is believed for them, and no episode ends because of them alone.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import GetValue, ValueContent
from ospbridge.osp.profile import Profile
from ospbridge.osp.step.lateness import RULE
from ospbridge.osp.timing import Limits
from tests.osp.pair import Datagram, Pair
from tests.osp.playing import BOTH, COUNTED, DONE, LOST, PROMPT, VOTE, Player, thinks

if TYPE_CHECKING:
    from collections.abc import Iterable

# --- answers to old questions --------------------------------------------------------------------------------------


class Answered:
    """Each question about a variable meets an old answer first, for as long as there is one."""

    def __init__(self, player: Player, value_id: int, *old: str) -> None:
        end = player.profile.end_marker
        self.player = player
        self.old = [ValueContent(value_id, text).encode(end=end) for text in old]
        self.asked = 0
        self._question = GetValue(value_id).encode(end=end)
        self._usual = player.pair.fault
        player.pair.fault = self._fault

    def _fault(self, datagram: Datagram) -> Iterable[float]:
        if datagram.to_server and datagram.data == self._question:
            self.asked += 1
            if self.old:
                self.player.pair.answer(self.player.client, self.old.pop(0))
        return self._usual(datagram)


def clock_of(player: Player, *old: str) -> Answered:
    return Answered(player, player.machine.clock.value_id, *old)


def in_doubt(player: Player, *, lost: bool) -> None:
    """The clock is read in the next step: the completion is lost, or each step is verified."""
    if lost:
        player.lose([DONE, 1])
    else:
        player.machine.guarded = True


FOUND_OUT: Final = pytest.mark.parametrize("lost", [True, False], ids=["found_out", "verified"])
SHOWN: Final = pytest.mark.parametrize("shown", [("0.01",), ("0.02", "0.02"), ("0", "0.02", "0.01")], ids=len)
"""What the clock showed after steps before the latest, and before the first one."""


@BOTH
@SHOWN
@FOUND_OUT
def test_a_late_answer_of_the_clock_ends_no_episode(
    profile: Profile, shown: tuple[str, ...], lost: bool
) -> None:
    player = Player(profile)
    player.begin(3)
    in_doubt(player, lost=lost)
    clock = clock_of(player, *shown)
    assert player.told(3) == ""
    assert not clock.old


@BOTH
@FOUND_OUT
@pytest.mark.parametrize("shown", [(), ("0", "0.02")], ids=len)
@pytest.mark.parametrize("back", [False, True], ids=["ran twice", "went back"])
def test_a_clock_that_really_shows_another_number_of_steps_ends_the_episode(
    profile: Profile, back: bool, shown: tuple[str, ...], lost: bool
) -> None:
    player = Player(profile)
    player.begin(3)
    in_doubt(player, lost=lost)
    clock = clock_of(player, *(shown if not back else ()))
    if back:
        player.pair.server.clock.restart()
    else:
        player.pair.server.clock.steps += 1
    with pytest.raises(StepUncertain, match="the clock shows"):
        player.step()
    assert clock.asked <= 4


VALUE: Final = "/Sim/agent0/motor/0"
"""An input, which reads as it was given."""


@BOTH
@pytest.mark.parametrize("disturbed", [True, False])
def test_what_a_variable_read_some_time_ago_is_not_told_when_it_is_asked_for(
    profile: Profile, disturbed: bool
) -> None:
    player = Player(profile)
    player.begin(1)
    old = player.client.do(player.talk.get(VALUE)).value
    player.step()
    player.machine.disturbed = disturbed
    value = Answered(player, player.machine.values[VALUE].id, *[old] * disturbed)
    assert float(player.client.do(player.talk.get(VALUE)).value) == player.given[-1]["agent0"][0]
    # A network that disturbs nothing is asked once.
    assert value.asked > 1 or not disturbed


@BOTH
def test_a_vote_that_is_lost_where_datagrams_come_late_is_not_awaited_for_as_long_as_a_step_may_take(
    profile: Profile,
) -> None:
    for lost in (True, False):
        player = Player(profile)
        player.pair.fault = lambda datagram: (0.0, 1.0) if datagram.data[0] == Code.VALUE else PROMPT
        player.begin(3)
        player.pair.settle(2.0)
        assert not player.machine.punctual
        player.pair.fault = lambda datagram: (
            (LOST if lost else (3.0,)) if datagram.data[0] == VOTE else PROMPT  # noqa: B023
        )
        began = player.pair.now
        if lost:
            with pytest.raises(StepUncertain, match=r"was not acknowledged within \d\.\d s") as caught:
                player.step()
            assert caught.value.by_network
            assert 3.0 < player.pair.now - began < 8.0
        else:  # it comes after all
            player.step()
            player.verify()


# --- simulators whose clock advances when a step begins, and everything else only when it ends ---------------------


@pytest.mark.sampled(20)
@BOTH
@pytest.mark.parametrize("milliseconds", np.arange(250.0, 256.0, 0.1).tolist())
@pytest.mark.parametrize("at", [0, 4])
def test_values_that_change_while_they_are_read_back_are_read_again(
    profile: Profile, at: int, milliseconds: float
) -> None:
    slow = milliseconds / 1000.0 + 0.27 * (at == 0)
    player = Player(profile, limits=Limits())
    thinks(player, lambda step: slow * (step == at), clock_first=True)
    player.begin(at)
    player.lose([DONE, 1])
    assert player.told(3) == ""


@pytest.mark.sampled(8)
@BOTH
@pytest.mark.parametrize("takes", [2.5, 3.0, 5.0])
@pytest.mark.parametrize("idle", [0.0, 0.3, 20.0])
@pytest.mark.parametrize("agents, lost", [(1, ()), (3, ()), (3, (2, 3))])
def test_one_that_was_taken_for_lost_is_told_by_the_next_which_ends_the_episode(
    profile: Profile, takes: float, idle: float, agents: int, lost: tuple[int, ...]
) -> None:
    """Nor does a late completion of one agent show that the step of others is over."""
    player = Player(profile, agents, limits=Limits())
    thinks(player, lambda _: takes, clock_first=True)
    player.reset()
    player.lose(*([DONE, agent] for agent in lost))

    def go_on() -> None:
        for _ in range(40):
            player.step()
            player.pair.settle(idle)

    with pytest.raises(StepUncertain):
        go_on()
    # What was believed too early is the first observation, no other one.
    assert set(player.wrong) == {0}
    player.pair.settle(20.0)
    assert player.machine.lateness.behind >= takes - 0.1 or lost
    if not lost:
        assert player.episode(20, seed=2) == ""


# --- completions that overtake the acknowledgement of the last vote ------------------------------------------------

BEHIND_ALL: Final = 0.0005


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("at", [0, 3])
def test_what_overtook_an_acknowledgement_is_understood_where_it_can_be_read_back(
    profile: Profile, agents: int, at: int
) -> None:
    player = Player(profile, agents)
    player.begin(at)
    player.meets((bytes((COUNTED, agents)), (BEHIND_ALL,)))
    assert player.step() < 0.6
    assert sum(player.steps(4)) < 0.1
    assert player.told(0) == ""


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("lost", [COUNTED, DONE])
def test_what_overtakes_in_every_step_behind_a_loss_makes_none_wait_for_what_has_come(
    profile: Profile, lost: Code, agents: int
) -> None:
    player = Player(profile, agents)
    last = bytes((COUNTED, agents))
    player.pair.fault = lambda datagram: (BEHIND_ALL,) if datagram.data.startswith(last) else PROMPT
    player.reset()
    player.meets((bytes((lost, agents)), LOST))
    took = player.steps(8)
    # The step behind a lost first completion cannot be told from it at once.
    assert max(took[2 if lost is COUNTED else 3 :]) < 0.6
    assert player.machine.lateness.behind == 0.0
    assert player.told(0) == ""


class AcknowledgesLast(Pair):
    """Its server acknowledges the vote that lets the world step, whichever that is, behind what the step brought."""

    def _to_client(self, handler_id: int, data: bytes) -> None:
        if data[0] == COUNTED and self.server.due:
            self.at(self.now + BEHIND_ALL, partial(super()._to_client, handler_id, data))
        else:
            super()._to_client(handler_id, data)


def used_to_it(profile: Profile, agents: int, *, shown: bool, clock: bool) -> Player:
    """A session that knows it, of those before: nothing but the order of datagrams tells that steps are as they should.

    Of several agents those before were told so often that their steps were uncertain.
    """
    player = Player(profile, agents, pair=AcknowledgesLast)
    player.pair.hide(clock=not clock, values=not shown)
    player.reset()
    for _ in range(RULE):
        if agents > 1 and not (shown and clock):
            with pytest.raises(StepUncertain, match="before the last vote was acknowledged"):
                player.step()
            player.succeed().reset()
        else:
            assert player.step() < 0.6
    return player


@BOTH
@pytest.mark.parametrize(
    "agents, shown, clock",
    [
        (1, True, True),
        (1, False, True),
        *((3, shown, clock) for shown in (True, False) for clock in (True, False)),
    ],
)
def test_a_server_that_acknowledges_last_is_known_by_it_after_a_few_steps(
    profile: Profile, agents: int, shown: bool, clock: bool
) -> None:
    player = used_to_it(profile, agents, shown=shown, clock=clock)
    for _ in range(2):
        assert max(player.steps(10)) < 0.1
        assert player.told(0) == ""
        # The same once more: what it brings has come before.
        player.reset()
    if shown and clock and agents == 1:
        # An older completion comes again when the next vote awaits its acknowledgement.
        player.step()
        player.once(DONE, 1, behind=0.002)
        assert player.told(6) == ""
