"""Sessions that live in storms: networks that lose, double, reorder and delay at random, replayable by their seed.

What must hold: nothing hangs; nothing is raised but errors of ours; and each step that a session believes ran exactly
once, with its inputs and its outputs, unless the session was told otherwise, at the latest by the audit at the end of
its episode. ``python -m tests.storm SEED --machines`` plays more of them.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.osp.playing import BOTH
from tests.storm.lives import Storm, Weather, untrue
from tests.storm.machines import play

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.osp.profile import Profile

CALM = Weather(0.0, 0.0, 0.0, 0.0)
CREWS = [(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (3, 3), (4, 3)]
"""Numbers of agents and of clients."""
WEATHERS = {
    "loses 2 %": replace(CALM, drop=0.02),
    "loses 10 %": replace(CALM, drop=0.1),
    "loses 20 %": replace(CALM, drop=0.2),
    "reorders 10 %": replace(CALM, reorder=0.1),
    "reorders 40 %": replace(CALM, reorder=0.4),
    "doubles 5 %": replace(CALM, duplicate=0.05),
    "doubles and loses 5 %": replace(CALM, duplicate=0.05, drop=0.05),
    "delays 2 %": replace(CALM, delay=0.02),
    "delays 10 %": replace(CALM, delay=0.1),
    "loses, reorders, delays 5 %": Weather(0.05, 0.0, 0.05, 0.05),
    "all 2 %": Weather(0.02, 0.02, 0.02, 0.02),
}


@pytest.mark.sampled(36)
@BOTH
@pytest.mark.parametrize("weather", WEATHERS.values(), ids=WEATHERS)
@pytest.mark.parametrize("agents, clients", CREWS, ids=[f"{a}_of_{c}" for a, c in CREWS])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_believed_is_true_or_told(
    profile: Profile, weather: Weather, agents: int, clients: int, seed: int
) -> None:
    lives, ledger, _ = play(Storm(seed, profile.name, agents, clients, weather, steps=40, told=2))
    assert list(untrue(lives, ledger)) == []


@BOTH
@pytest.mark.parametrize("agents, steps", [(1, 400), (3, 100)])
def test_99_of_100_steps_need_no_rebuild_under_sole_control_where_2_percent_are_lost(
    profile: Profile, agents: int, steps: int, request: pytest.FixtureRequest
) -> None:
    steps *= 20 if request.config.getoption("--whole") else 1
    lives, ledger, _ = play(Storm(7, profile.name, agents, 1, WEATHERS["loses 2 %"], steps=steps))
    assert not list(untrue(lives, ledger))
    told = [episode.told for episode in lives[0].episodes if episode.told]
    assert len(told) + len(lives[0].troubles) <= steps / 100, told[:5]


class Bursts:
    """Loses a share of each direction's datagrams, one to three in a row."""

    def __init__(self, share: float, draw: random.Random) -> None:
        # A burst is 2 datagrams long on the average: so often must one begin where none is under way.
        self._begin = share / (2 - share)
        self._draw = draw
        self._left = {True: 0, False: 0}

    def __call__(self, datagram: Datagram) -> Iterable[float]:
        way = datagram.to_server
        if not self._left[way] and self._draw.random() < self._begin:
            self._left[way] = self._draw.randint(1, 3)
        if not self._left[way]:
            return (0.0,)
        self._left[way] -= 1
        return ()


@BOTH
def test_every_handshake_succeeds_where_bursts_lose_30_percent(profile: Profile) -> None:
    for seed in range(60):
        pair = Pair(SyntheticWorld(2, 3), profile, fault=Bursts(0.3, random.Random(f"{profile.name}/{seed}")))
        began = pair.now
        client = pair.client(None if seed % 2 else profile).connect()
        assert pair.now - began <= Limits().connect
        assert client.conversation.machine.profile is profile
