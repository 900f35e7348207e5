"""Sessions on networks that lose, double, reorder and delay at random, each replayable by its seed.

What must hold: nothing hangs; nothing is raised but errors of ours; and each step that a session believes ran exactly
once, with its inputs and its outputs, unless the session was told otherwise, at the latest by the audit at the end of
its episode. Only a network that both doubles and delays can do what no client can tell (`tests.storm.explaining`).
``python -m tests.storm.seeds`` plays 1,000 of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ospbridge.osp.profile import PROFILES, Profile
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from tests.osp.pair import Datagram, Pair
from tests.osp.stage import BOTH
from tests.storm.explaining import judge
from tests.storm.lives import Weather
from tests.storm.machines import perform
from tests.storm.seeds import WEATHERS, storm_of

CALM = Weather(0.0, 0.0, 0.0, 0.0)


@pytest.mark.sampled(36)
@pytest.mark.parametrize("seed", range(480))
def test_what_is_believed_is_true_or_told(seed: int) -> None:
    assert not judge(storm_of(seed)).broken, f"python -m tests.storm.seeds {seed}"


def test_the_seeds_have_each_weather_with_each_profile_and_each_crew() -> None:
    storms = [storm_of(seed) for seed in range(480)]
    crews = {(storm.agents, storm.clients) for storm in storms}
    assert crews == {(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)}
    cases = {(storm.weather, storm.profile, storm.agents, storm.clients) for storm in storms}
    assert len(cases) == len(WEATHERS) * len(PROFILES) * len(crews)


@BOTH
def test_a_seed_tells_the_same_story_again(profile: Profile) -> None:
    storm = replace(storm_of(4), profile=profile.name, steps=20)
    (lives, pair), (again, other) = perform(storm), perform(storm)
    assert (lives, pair.ledger, pair.count, pair.now) == (again, other.ledger, other.count, other.now)


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
