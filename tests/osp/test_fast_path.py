"""The fast path of a step: what is recognised on it, where it stands when it is left, and what it costs."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.step import barrier
from ospbridge.osp.step.straight import StraightWay
from ospbridge.osp.step.votes import Vote
from ospbridge.osp.timing import Limits
from tests.osp.playing import BOTH, DONE, Player
from tests.osp.stage import on_stage


def way_of(agents: int = 1, *, pipelining: bool = False) -> tuple[StraightWay, list[bytes | bytearray]]:
    outgoing: list[bytes | bytearray] = []
    one = (InterfaceValue("/one", 0.0, 1.0),)
    votes = tuple(
        Vote(AgentInterface(at, f"a{at}", one, one + one, one, ""), NERD) for at in range(1, agents + 1)
    )
    way = StraightWay(votes, outgoing, pipelining=pipelining)
    way.begin(0.0)
    return way, outgoing


def completion(agent_id: int, *, outputs: int = 2, observed: int = 0) -> bytes:
    numbers = np.arange(outputs + 1, dtype=np.float32) + agent_id
    return StepCompleted(agent_id, numbers[:outputs], numbers[outputs:], (), observed).encode()


def ack(agent_id: int) -> bytes:
    return NextSimulationStepAck(agent_id).encode()


@pytest.mark.parametrize("end", [b"", b"x"])
def test_an_acknowledgement_and_a_completion_are_recognised_with_and_without_the_end_byte(end: bytes) -> None:
    way, outgoing = way_of()
    assert way.take(ack(1) + end)
    assert not way.arrived
    assert way.take(completion(1) + end)
    assert way.arrived
    assert outgoing == [way.votes[0].datagram, way.votes[0].done]
    brought = way.completions[1]
    assert (brought.outputs.tolist(), brought.infos.tolist()) == ([1.0, 2.0], [3.0])


@pytest.mark.parametrize("data", [b"", ack(2), ack(1)[:-1], ack(1) + b"y", ack(1) + b"xx", completion(1)])
def test_anything_but_the_acknowledgement_that_comes_next_is_left_alone(data: bytes) -> None:
    way, outgoing = way_of()
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
        struct.pack("<Biiiii", DONE, 1, 1, 2, 0, 0) + bytes(12),
    ],
)
def test_anything_but_the_completion_that_comes_next_is_left_alone(data: bytes) -> None:
    way, outgoing = way_of()
    assert way.take(ack(1))
    assert not way.take(data)
    assert len(outgoing) == 1
    assert way.unacknowledged == set()
    assert way.completions == {}


@pytest.mark.parametrize("pipelining", [False, True])
@pytest.mark.parametrize("came", range(6))
def test_where_it_stands_is_what_has_come(came: int, pipelining: bool) -> None:
    way, _ = way_of(3, pipelining=pipelining)
    for data in [*(ack(at) for at in (1, 2, 3)), *(completion(at) for at in (1, 2, 3))][:came]:
        assert way.take(data)
    assert not way.arrived
    sent = 3 if pipelining else min(came + 1, 3)
    assert [vote.agent_id for vote in way.unsent] == [1, 2, 3][sent:]
    assert way.unacknowledged == {1, 2, 3} & set(range(came + 1, sent + 1))
    assert sorted(way.completions) == list(range(1, came - 2))


@pytest.mark.parametrize("agents, prepared", [(1, True), (1, False), (2, True)])
def test_a_link_walks_a_step_by_itself(agents: int, *, prepared: bool) -> None:
    """And brings arrays that are the caller's own, whether they were prepared or not."""
    machine, _ = on_stage(NERD)
    votes = way_of(agents)[0].votes
    comes = [*map(ack, range(1, agents + 1)), *map(completion, range(1, agents + 1))]
    way = machine.set_out(votes, 1.0)
    assert way is not None
    way.came = []
    if prepared:
        way.prepare()
    assert all(way.comes(data) for data in comes)
    assert way.completing
    machine.arrived(way)
    found = way.outcomes()
    assert [of.outputs.tolist() for of in found.values()] == [[at, at + 1] for at in range(1, agents + 1)]
    assert all(of.outputs.flags.writeable for of in found.values())
    assert not machine.vote_outstanding
    if agents == 1:
        for _ in range(2):
            assert way.outcome().infos.tolist() == [3.0]
            way.prepare()
    machine.begin(barrier.step(machine, votes), 2.0)
    assert machine.straight is way
    assert all(way.comes(data) for data in comes)
    machine.walked(2.1)
    assert machine.finished
    assert machine.clock.count == 2
    machine.guarded = True
    assert machine.set_out(votes, 3.0) is None


@BOTH
def test_what_an_episode_asks_beside_its_steps_are_four_looks_at_the_clock(profile: Profile) -> None:
    player, steps = Player(profile), 20
    assert player.episode(3) == ""
    before = len(player.pair.sent)
    assert player.episode(steps, seed=8) == ""
    codes = [datagram.data[0] for datagram in player.pair.sent[before:] if datagram.to_server]
    assert codes.count(Code.GET_VALUE) == 4
    seeded = [Code.SET_VALUE] if profile is NERD else []
    assert codes[: len(seeded) + 2] == [*seeded, Code.GET_VALUE, Code.RESET_SIMULATION]
    assert len(codes) == 4 + len(seeded) + 2 + 2 * steps


@BOTH
@pytest.mark.parametrize("one_way", [0.13, 0.3])
def test_a_step_takes_one_round_trip(profile: Profile, one_way: float) -> None:
    """Also where that is longer than the shortest silence that is acted upon."""
    player = Player(profile, fault=lambda _: (one_way,))
    player.begin(1)
    assert max(player.steps(18)) < 2.2 * one_way
    assert player.told(0) == ""
    assert not player.machine.disturbed


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
def test_a_way_whose_round_trips_look_like_silence_costs_time_and_no_step(
    profile: Profile, agents: int
) -> None:
    way = 0.2
    # Time for what takes a silence for a loss at first, and reads all values back.
    player = Player(profile, agents, limits=Limits(step=20.0))
    player.pair.fault = lambda _: (way,)
    player.reset()
    took = player.steps(12)
    assert player.told(0) == ""
    assert player.sent(Code.NEXT_SIMULATION_STEP) == agents * len(took)
    assert max(took[2:]) < 2 * way * (10 + agents)
    if agents > 1:
        # By then answers have told how far it is, and nothing was late for a while.
        assert took[-1] < 2 * way * (4 + agents)
