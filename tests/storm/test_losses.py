"""Networks that only lose: joining comes about within its limit, and what is lost of steps is found again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from ospbridge.osp.profile import Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.storm.judging import untrue
from tests.storm.lives import Storm, Weather
from tests.storm.machines import play

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = pytest.mark.exhaustive


class Bursts:
    """Loses a share of each direction's datagrams, one to three in a row."""

    def __init__(self, share: float, draw: random.Random) -> None:
        # A burst is 2 datagrams long on the average: so often must one begin where none is under way.
        self._begin = share / (2 - share)
        self._draw = draw
        self._left = {True: 0, False: 0}
        self.seen = self.lost = 0

    def __call__(self, datagram: Datagram) -> Iterable[float]:
        way = datagram.to_server
        self.seen += 1
        if not self._left[way] and self._draw.random() < self._begin:
            self._left[way] = self._draw.randint(1, 3)
        if self._left[way]:
            self._left[way] -= 1
            self.lost += 1
            return ()
        return (0.0,)


def test_200_handshakes_of_200_succeed_where_bursts_lose_30_percent(profile: Profile) -> None:
    seen = lost = 0
    for seed in range(200):
        bursts = Bursts(0.3, random.Random(f"{profile.name}/{seed}"))
        pair = Pair(SyntheticWorld(2, 3), profile, fault=bursts)
        began = pair.now
        client = pair.client(None if seed % 2 else profile).connect()
        assert pair.now - began <= Limits().connect
        assert client.conversation.machine.profile is profile
        seen, lost = seen + bursts.seen, lost + bursts.lost
    assert 0.25 < lost / seen < 0.4, "a share of some 30 % is what this is about"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("agents, steps", [(1, 10_000), (3, 1_000)])
def test_99_of_100_steps_need_no_rebuild_under_sole_control_where_2_percent_are_lost(
    profile: Profile, agents: int, steps: int
) -> None:
    weather = Weather(drop=0.02, duplicate=0.0, reorder=0.0, delay=0.0)
    storm = Storm(7, profile.name, agents, 1, weather, steps=steps)
    lives, ledger, _ = play(storm)
    assert not list(untrue(lives, ledger))
    told = [episode.told for episode in lives[0].episodes if episode.told]
    assert len(told) + len(lives[0].troubles) <= steps / 100, told[:5]
    assert lives[0].steps >= steps
