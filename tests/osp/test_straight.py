"""The straight way of a step: what is recognised on it, and where it stands when it is left."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step.straight import StraightWay
from ospbridge.osp.step.votes import Vote
from ospbridge.simulator.synthetic import SyntheticWorld, expected
from tests.osp.pair import Datagram, Pair

if TYPE_CHECKING:
    from collections.abc import Iterable

BOTH = pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)


def way_of(agents: int = 1, *, pipelining: bool = False) -> tuple[StraightWay, list[bytes | bytearray]]:
    outgoing: list[bytes | bytearray] = []
    one = (InterfaceValue("/one", 0.0, 1.0),)
    votes = tuple(
        Vote(AgentInterface(at, f"a{at}", one, one + one, one, ""), NERD) for at in range(1, agents + 1)
    )
    return StraightWay(votes, outgoing, pipelining=pipelining), outgoing


def completion(agent_id: int, *, outputs: int = 2, observed: int = 0) -> bytes:
    numbers = np.arange(outputs + 1, dtype=np.float32) + agent_id
    return StepCompleted(agent_id, numbers[:outputs], numbers[outputs:], (), observed).encode()


def ack(agent_id: int) -> bytes:
    return NextSimulationStepAck(agent_id).encode()


@pytest.mark.parametrize("end", [b"", b"x"])
def test_an_acknowledgement_and_a_completion_are_recognised_with_and_without_the_end_byte(end: bytes) -> None:
    way, outgoing = way_of()
    way.begin(0.0)
    assert way.take(ack(1) + end)
    assert not way.arrived
    assert way.take(completion(1) + end)
    assert way.arrived
    assert outgoing == [way.votes[0].datagram, way.votes[0].done]
    brought = way.completions[1]
    assert brought.outputs.tolist() == [1.0, 2.0]
    assert brought.infos.tolist() == [3.0]
    assert brought.outputs.flags.writeable


def test_votes_go_out_one_by_one_or_all_at_once() -> None:
    one_by_one, outgoing = way_of(3)
    one_by_one.begin(0.0)
    assert len(outgoing) == 1
    assert one_by_one.take(ack(1))
    assert outgoing[1:] == [one_by_one.votes[1].datagram]
    at_once, outgoing = way_of(3, pipelining=True)
    at_once.begin(0.0)
    assert outgoing == [vote.datagram for vote in at_once.votes]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        ack(2),
        ack(1)[:-1],
        ack(1) + b"y",
        ack(1) + b"xx",
        completion(1),
    ],
)
def test_anything_but_the_acknowledgement_that_comes_next_is_left_alone(data: bytes) -> None:
    way, outgoing = way_of()
    way.begin(0.0)
    assert not way.take(data)
    assert len(outgoing) == 1
    assert way.unacknowledged == {1}


@pytest.mark.parametrize(
    "data",
    [
        ack(1),
        completion(2),
        completion(1)[:-1],
        completion(1) + b"y",
        completion(1) + b"xx",
        completion(1, outputs=1),
        completion(1, outputs=3),
        completion(1, observed=1),
        struct.pack("<Biiiii", 85, 1, 1, 2, 0, 0) + bytes(12),
    ],
)
def test_anything_but_the_completion_that_comes_next_is_left_alone(data: bytes) -> None:
    way, outgoing = way_of()
    way.begin(0.0)
    assert way.take(ack(1))
    assert not way.take(data)
    assert len(outgoing) == 1
    assert way.unacknowledged == set()
    assert way.completions == {}


@pytest.mark.parametrize("pipelining", [False, True])
@pytest.mark.parametrize("came", range(6))
def test_where_it_stands_is_what_has_come(came: int, pipelining: bool) -> None:
    way, _ = way_of(3, pipelining=pipelining)
    way.begin(0.0)
    for data in [*(ack(at) for at in (1, 2, 3)), *(completion(at) for at in (1, 2, 3))][:came]:
        assert way.take(data)
    assert not way.arrived
    sent = 3 if pipelining else min(came + 1, 3)
    assert [vote.agent_id for vote in way.unsent] == [1, 2, 3][sent:]
    assert way.unacknowledged == {1, 2, 3} & set(range(came + 1, sent + 1))
    assert sorted(way.completions) == list(range(1, came - 2))


def test_the_next_step_knows_nothing_of_the_last() -> None:
    way, _ = way_of()
    for _ in range(2):
        way.begin(0.0)
        assert way.take(ack(1))
        kept = way.completions
        assert kept == {}
        assert way.take(completion(1))


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
def test_steps_in_calm_weather_are_straight_and_what_they_bring_is_the_callers_own(
    profile: Profile, agents: int
) -> None:
    names = [f"agent{at}" for at in range(agents)]
    pair = Pair(SyntheticWorld(2, 3, 1, names=names), profile)
    client = pair.client(profile).connect()
    client.do(client.conversation.register(names))
    client.do(client.conversation.reset(7))
    machine = client.conversation.machine
    kept = []
    for number in range(5):
        inputs = {name: np.array([number / 64, at / 64], np.float32) for at, name in enumerate(names)}
        exchange = client.conversation.step(inputs)
        client.begin(exchange)
        # The very first step measures how much time one takes.
        assert (machine.straight is not None) is (number > 0)
        while not client.finished:
            pair.advance(until=pair.now + 10)
        outcome = client.outcome()
        assert machine.straight is None
        for name in names:
            values = np.concatenate([outcome[name].outputs, outcome[name].infos])
            np.testing.assert_array_equal(values, expected(inputs[name], number + 1, 4, seed=7))
            outcome[name].outputs += 1.0
            kept.append((outcome[name].outputs, outcome[name].outputs.copy()))
    for array, as_it_was in kept:
        np.testing.assert_array_equal(array, as_it_was)
    assert not client.conversation.take_notices()


@BOTH
def test_a_completion_of_a_straight_step_is_known_again_when_it_comes_twice(profile: Profile) -> None:
    doubled = False

    def fault(datagram: Datagram) -> Iterable[float]:
        return (0.0, 0.01) if doubled and not datagram.to_server and datagram.data[0] == 85 else (0.0,)

    pair = Pair(SyntheticWorld(2, 3, 1), profile, fault=fault)
    client = pair.client(profile).connect()
    client.do(client.conversation.register(["agent"]))
    client.do(client.conversation.reset(7))
    for number in range(4):
        doubled = number == 2
        client.do(client.conversation.step({"agent": [number / 8, 0.0]}))
        pair.settle(0.1)
    assert "late or twice" in client.conversation.take_notices()[0].text
    assert client.do(client.conversation.audit()) == ""
