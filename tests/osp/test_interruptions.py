"""Steps and resets whose caller does not wait for their end, as after Ctrl-C, and variables set in mid-episode."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.profile import NERD, Profile
from tests.osp.pair import no_fault
from tests.osp.playing import BOTH, LOST, PROMPT, RESETS, SEEN, VOTE, Player

if TYPE_CHECKING:
    from collections.abc import Callable


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


@pytest.mark.sampled(12)
@BOTH
@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("takes", [0.0, 0.2])
@pytest.mark.parametrize("after", range(16))
def test_a_reset_interrupted_in_any_phase_is_followed_by_one_of_its_own_seed(
    profile: Profile, after: int, takes: float, agents: int
) -> None:
    """Also where the world, which answers meanwhile, is still at the first one."""
    player = Player(profile, agents)
    player.begin(1)
    player.pair.fault = lambda datagram: (
        (takes,) if not datagram.to_server and datagram.data[0] in RESETS else PROMPT
    )
    player.client.begin(player.talk.reset(1))
    for _ in range(after):
        if not player.client.finished:
            player.pair.advance(until=player.pair.now + 10)
    player.machine.interrupt(RuntimeError("cancelled"))
    assert player.episode(3, seed=9) == ""


@BOTH
def test_behind_an_interrupted_reset_there_is_no_step_without_another(profile: Profile) -> None:
    player, _ = given_up(profile, 6 if profile is NERD else 3)
    player.pair.settle()
    with pytest.raises(StepUncertain) as told:
        player.step()
    assert told.value.interrupted


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
