"""Steps and resets whose caller does not wait for their end, as after Ctrl-C, and variables set in mid-episode."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.client import resetting
from ospbridge.osp.client.notices import WorldReset
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import NERD, Profile
from tests.osp.pair import no_fault
from tests.osp.playing import BOTH, LOST, PROMPT, SEEN, VOTE, Player

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def interrupted(player: Player, exchange: Any, datagrams: int) -> bool:
    """Begin it, and give it up when so many datagrams were sent. Whether it was over before."""
    until = len(player.pair.sent) + datagrams
    player.client.begin(exchange)
    while len(player.pair.sent) < until and not player.client.finished:
        player.pair.advance(until=player.pair.now + 1.0)
    over = player.client.finished
    player.machine.interrupt(KeyboardInterrupt())
    return over


# --- steps ---------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("disturbed", [False, True], ids=["quiet", "disturbed"])
def test_the_next_step_is_in_doubt_wherever_one_was_interrupted(profile: Profile, *, disturbed: bool) -> None:
    for datagrams in count():
        player = Player(profile)
        player.begin(2)
        if disturbed:
            player.machine.anomaly("of this test")
        if interrupted(player, player.talk.step({"agent0": [0.5]}), datagrams):
            break
        player.pair.settle()
        with pytest.raises(StepUncertain) as told:
            player.step()
        assert told.value.interrupted
    # With what is asked on a network that disturbs: whether the step ran, and with these inputs.
    assert datagrams > (6 if disturbed else 2)


# --- resets: their votes count all the same, and they complete -----------------------------------------------------


def given_up(
    profile: Profile, datagrams: int, *, agents: int = 1, steps: int | None = 2
) -> tuple[Player, bool]:
    """A session whose reset was interrupted behind so many datagrams, and whether it was over before."""
    player = Player(profile, agents)
    if steps is not None:
        player.begin(steps)
    return player, interrupted(player, player.talk.reset(7), datagrams)


CASES = [(agents, steps, later) for agents in (1, 3) for steps in (None, 0, 2) for later in (0.0, 1e-4, 1.0)]


@pytest.mark.sampled(6)
@BOTH
@pytest.mark.parametrize("agents, steps, later", CASES)
def test_the_next_reset_takes_no_longer_wherever_one_was_interrupted(
    profile: Profile, agents: int, steps: int | None, later: float
) -> None:
    for datagrams in count():
        player, over = given_up(profile, datagrams, agents=agents, steps=steps)
        if over:
            break
        player.pair.settle(later)
        assert player.reset(9) < 2.0 * profile.patience
        assert player.told(3) == ""
    assert datagrams > 5


@BOTH
def test_the_next_reset_awaits_no_completion_that_had_just_come(
    profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    player = Player(profile)
    player.begin(1)
    with monkeypatch.context() as patch:
        patch.setattr(resetting, "_began_anew", interrupt)
        with pytest.raises(KeyboardInterrupt):
            player.reset()
    player.machine.interrupt(KeyboardInterrupt())
    assert player.reset(9) < 2.0 * profile.patience
    assert player.told(1) == ""


@BOTH
def test_behind_an_interrupted_reset_there_is_no_step_without_another(profile: Profile) -> None:
    player, _ = given_up(profile, 6 if profile is NERD else 3)
    player.pair.settle()
    with pytest.raises(StepUncertain) as told:
        player.step()
    assert told.value.interrupted


FATES = {"lost": (), "late": (0.4,), "twice": (0.0, 0.4), "again": (0.0, 1.5)}


@pytest.mark.sampled(2)
@BOTH
@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("what", FATES.values(), ids=FATES)
def test_whatever_happens_to_one_datagram_episodes_behind_it_are_as_they_should_be_or_in_doubt(
    profile: Profile, agents: int, what: Iterable[float]
) -> None:
    for number in count():
        # As a rule interrupted with its votes under way, or counted.
        player, _ = given_up(profile, 4 + number % 6, agents=agents)
        at = player.pair.count + number
        player.pair.fault = lambda datagram, at=at: what if datagram.number == at else PROMPT  # type: ignore[misc]
        with suppress(StepUncertain):
            player.reset(9)
            player.steps(4)
            told = player.audit()
            if not told and not any(isinstance(each, WorldReset) for each in player.talk.take_notices()):
                player.verify()
        if player.pair.count <= at:
            break
    assert number > 20


# --- variables that are set, and agents that are taken, in mid-episode ---------------------------------------------


def set_a_variable(player: Player) -> None:
    player.client.do(player.talk.set("/Simulation/RandomizeSeedAtReset", "F"))


def take_an_agent(player: Player) -> None:
    player.client.do(player.talk.register(["agent1"]))


def make_a_step_more(player: Player) -> None:
    """The latest vote comes once more, and nothing tells the client of what comes of it."""
    pair, address, port = player.pair, player.client.address, player.talk.handler.port
    vote = next(d.data for d in reversed(pair.sent) if d.data[0] == VOTE)
    pair.fault = lambda datagram: PROMPT if datagram.to_server else LOST
    for data in (vote, bytes([SEEN])):
        pair.to_handler(data, port, address)
        pair.settle()
    pair.fault = no_fault


@BOTH
@pytest.mark.parametrize("act", [set_a_variable, take_an_agent])
def test_a_step_too_many_before_it_is_told(profile: Profile, act: Callable[[Player], None]) -> None:
    """The clock may count otherwise from then on."""
    player = Player(profile, 2, taken=1)
    player.begin(3)
    make_a_step_more(player)
    act(player)
    told = "3 steps were given, the clock shows 4"
    assert player.audit() == told
    with pytest.raises(StepUncertain, match=told):
        player.client.do(player.talk.step({name: [0.25] for name in player.talk.votes}))
    # Until the next episode begins.
    player.client.do(player.talk.reset(8))
    player.client.do(player.talk.step({name: [0.25] for name in player.talk.votes}))
    assert player.audit() == ""


@BOTH
def test_an_episode_without_fault_goes_on_and_behind_its_audit_nothing_more_is_asked(
    profile: Profile,
) -> None:
    player = Player(profile)
    player.begin(3)
    for _ in range(3):
        set_a_variable(player)
        player.steps(2)
    assert player.audit() == ""
    assert not player.machine.disturbed
    asked = player.sent(Code.GET_VALUE)
    set_a_variable(player)
    assert player.sent(Code.GET_VALUE) == asked
