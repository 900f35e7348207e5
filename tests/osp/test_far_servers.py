"""Servers so far away that each answer takes longer than the shortest silence that is acted upon."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from ospbridge.errors import QueryTimeout, StepUncertain
from ospbridge.osp.client.round_trips import LONGEST, RoundTrips
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
GIVEN = np.array([0.25], np.float32)
STEPS = 20
SHORTEST = 0.25


@BOTH
@pytest.mark.parametrize("one_way", [0.13, 0.15, 0.3])
def test_a_step_takes_one_round_trip(profile: Profile, one_way: float) -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["agent"]), profile, fault=lambda _: (one_way,))
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(7))
    client.do(talk.step({"agent": GIVEN}))
    for step in range(2, STEPS):
        began = pair.now
        outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
        np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
        assert pair.now - began < 2.2 * one_way
    assert client.do(talk.audit()) == ""
    assert not talk.machine.disturbed


@BOTH
def test_what_an_episode_asks_beside_its_steps_are_four_looks_at_the_clock(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["agent"]), profile)
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))

    def episode(seed: int) -> list[int]:
        sent = len(pair.sent)
        client.do(talk.reset(seed))
        for _ in range(STEPS):
            client.do(talk.step({"agent": GIVEN}))
        assert client.do(talk.audit()) == ""
        return [datagram.data[0] for datagram in pair.sent[sent:] if datagram.to_server]

    episode(7)
    codes = episode(8)
    assert codes.count(Code.GET_VALUE) == 4
    seeded = [Code.SET_VALUE] if profile is NERD else []
    assert codes[: len(seeded) + 2] == [*seeded, Code.GET_VALUE, Code.RESET_SIMULATION]
    assert len(codes) == 4 + len(seeded) + 2 + 2 * STEPS


@BOTH
@pytest.mark.parametrize("seed", range(20))
def test_where_datagrams_are_lost_as_well_each_step_runs_once_or_the_doubt_is_told(
    profile: Profile, seed: int
) -> None:
    draw = random.Random(seed)
    pair = Pair(SyntheticWorld(1, 2, names=["agent"]), profile, fault=lambda _: (0.15,))
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    client.do(talk.register(["agent"]))
    client.do(talk.reset(7))

    def loses(_: Datagram) -> Iterable[float]:
        return () if draw.random() < 0.1 else (0.15 * draw.uniform(1.0, 1.3),)

    pair.fault = loses
    given = len(pair.ledger)
    with suppress(StepUncertain, QueryTimeout):
        for step in range(1, STEPS):
            outcome = client.do(talk.step({"agent": GIVEN}))["agent"]
            np.testing.assert_array_equal(outcome.outputs, expected(GIVEN, step, 2, 7))
            assert len(pair.ledger) == given + step
        assert client.do(talk.audit()) == ""


@BOTH
def test_a_server_nearby_is_not_waited_for_any_longer(profile: Profile) -> None:
    pair = Pair(SyntheticWorld(1, 2, names=["agent"]), profile)
    lost = 2 if profile is DOCUMENT else 1

    def loses_the_first(datagram: Datagram) -> Iterable[float]:
        return () if datagram.number < lost else (0.0,)

    pair.fault = loses_the_first
    client = pair.client(profile).connect()
    talk: Any = client.conversation
    assert talk.machine.patience > profile.patience, "INIT may have been answered as late"
    client.do(talk.register(["agent"]))
    assert talk.machine.patience == profile.patience


def test_it_is_never_less_than_the_shortest_nor_more_than_the_longest() -> None:
    trips = RoundTrips(SHORTEST)
    assert trips.greeted(0.0) == SHORTEST
    assert trips.greeted(60.0) == LONGEST
    assert trips.took(0.0001) == SHORTEST
    assert all(SHORTEST <= trips.took(seconds) <= LONGEST for seconds in (5.0, 0.3, 0.0, 0.3, 5.0))


def test_it_follows_what_answers_take() -> None:
    trips = RoundTrips(SHORTEST)
    assert [trips.took(0.3) for _ in range(50)][-1] == pytest.approx(0.6)
    assert [trips.took(0.001) for _ in range(50)][-1] == SHORTEST
