"""Steps and resets whose caller does not wait for their end, as after Ctrl-C, and variables set in mid-episode."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

from ospbridge.errors import StepUncertain
from ospbridge.osp.profile import Profile
from tests.osp.pair import no_fault
from tests.osp.playing import DONE, LOST, PROMPT, REQUEST, SEEN, Player
from tests.osp.stage import BOTH


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
@pytest.mark.parametrize("lost", [False, True], ids=["quiet", "its completion lost"])
def test_the_next_step_is_in_doubt_wherever_one_was_interrupted(profile: Profile, *, lost: bool) -> None:
    for datagrams in count():
        player = Player(profile)
        player.begin(2)
        if lost:
            player.lose([DONE, 1])
        if interrupted(player, player.talk.step({"agent0": [0.5]}), datagrams):
            break
        player.pair.settle()
        with pytest.raises(StepUncertain) as told:
            player.step()
        assert told.value.interrupted
        assert player.audit()
    # With what is asked where a completion is lost: whether the step ran, and what it brought.
    assert datagrams > (10 if lost else 2)


# --- resets: their requests count all the same, and they complete --------------------------------------------------


@pytest.mark.sampled(6)
@BOTH
@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("steps", [None, 0, 2])
@pytest.mark.parametrize("later", [0.0, 1.0])
def test_behind_an_interrupted_reset_there_is_no_step_nor_reset_without_another_session(
    profile: Profile, agents: int, steps: int | None, later: float
) -> None:
    for datagrams in count():
        player = Player(profile, agents)
        if steps is not None:
            player.begin(steps)
        if interrupted(player, player.talk.reset(7), datagrams):
            break
        player.pair.settle(later)
        if player.machine.episode.reset_outstanding or player.machine.episode.request_outstanding:
            for again in (player.step, player.reset):
                with pytest.raises(StepUncertain) as told:
                    again()
                assert told.value.interrupted
            player.succeed()
        # Whatever is left of it, the next reset begins an episode of its own.
        assert player.episode(3, seed=9) == ""
    assert datagrams > 5


# --- variables that are set, and agents that are taken, in mid-episode ---------------------------------------------


def set_a_variable(player: Player) -> None:
    player.client.do(player.talk.set("/Simulation/RandomizeSeedAtReset", "F"))


def take_an_agent(player: Player) -> None:
    player.client.do(player.talk.register(["agent1"]))


def make_a_step_more(player: Player) -> None:
    """The latest request comes once more, and nothing tells the client of what comes of it."""
    pair, address, port = player.pair, player.client.address, player.talk.handler.port
    request = next(d.data for d in reversed(pair.sent) if d.data[0] == REQUEST)
    pair.fault = lambda datagram: PROMPT if datagram.to_server else LOST
    for data in (request, bytes([SEEN])):
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
        player.client.do(player.talk.step(dict.fromkeys(player.talk.requests, np.full(1, 0.25))))
    # Until the next episode begins.
    player.client.do(player.talk.reset(8))
    player.client.do(player.talk.step(dict.fromkeys(player.talk.requests, np.full(1, 0.25))))
    assert player.audit() == ""
