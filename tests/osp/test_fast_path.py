"""The fast path of a step: what is recognized on it, where it stands when it is left, and what it costs."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from ospbridge.errors import SessionLost
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.client import Episode
from ospbridge.osp.clock import StepClock
from ospbridge.osp.codes import Code
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted
from ospbridge.osp.profile import NERD, Profile
from ospbridge.osp.step import fall_back, step
from ospbridge.osp.timing import Limits
from tests.osp.playing import BOTH, DONE, REQUEST, Player
from tests.osp.stage import Stage, on_stage
from tests.osp.stage import ack as acknowledged


def path_of(agents: int = 1, *, pipelining: bool = False) -> tuple[FastPath, list[bytes | bytearray]]:
    outgoing: list[bytes | bytearray] = []
    one = (InterfaceValue("/one", 0.0, 1.0),)
    requests = tuple(
        StepRequest(AgentInterface(at, f"a{at}", one, one + one, one, ""), NERD)
        for at in range(1, agents + 1)
    )
    path = FastPath(requests, outgoing, pipelining=pipelining)
    path.begin(0.0)
    return path, outgoing


def completion(agent_id: int, *, outputs: int = 2, observed: int = 0) -> bytes:
    numbers = np.arange(outputs + 1, dtype=np.float32) + agent_id
    return StepCompleted(agent_id, numbers[:outputs], numbers[outputs:], (), observed).encode()


def ack(agent_id: int) -> bytes:
    return NextSimulationStepAck(agent_id).encode()


@pytest.mark.parametrize("end", [b"", b"x"])
def test_an_acknowledgement_and_a_completion_are_recognised_with_and_without_the_end_byte(end: bytes) -> None:
    path, outgoing = path_of()
    assert path.take(ack(1) + end)
    assert not path.finished
    assert path.take(completion(1) + end)
    assert path.finished
    assert outgoing == [path.requests[0].datagram, path.requests[0].completed_ack]
    brought = path.completions(path.came)[1]
    assert (brought.outputs.tolist(), brought.infos.tolist()) == ([1.0, 2.0], [3.0])


@pytest.mark.parametrize("data", [b"", ack(2), ack(1)[:-1], ack(1) + b"y", ack(1) + b"xx", completion(1)])
def test_anything_but_the_acknowledgement_that_comes_next_is_left_alone(data: bytes) -> None:
    path, outgoing = path_of()
    assert not path.take(data)
    assert len(outgoing) == 1
    assert path.unacknowledged == [1]


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
    path, outgoing = path_of()
    assert path.take(ack(1))
    assert not path.take(data)
    assert len(outgoing) == 1
    assert path.unacknowledged == []
    assert path.completions(path.came) == {}


@pytest.mark.parametrize("pipelining", [False, True])
@pytest.mark.parametrize("came", range(6))
def test_where_it_stands_is_what_has_come(came: int, pipelining: bool) -> None:
    path, _ = path_of(3, pipelining=pipelining)
    for data in [*(ack(at) for at in (1, 2, 3)), *(completion(at) for at in (1, 2, 3))][:came]:
        assert path.take(data)
    assert not path.finished
    sent = 3 if pipelining else min(came + 1, 3)
    assert [request.agent_id for request in path.unsent] == [1, 2, 3][sent:]
    assert path.unacknowledged == [1, 2, 3][came:sent]
    assert sorted(path.completions(path.came)) == list(range(1, came - 2))


@pytest.mark.parametrize("agents, prepared", [(1, True), (1, False), (2, True)])
def test_a_driver_runs_a_step_by_itself(agents: int, *, prepared: bool) -> None:
    """And brings arrays that are the caller's own, whether they were prepared or not."""
    machine, _ = on_stage(NERD)
    path, _ = path_of(agents)
    comes = [*map(ack, range(1, agents + 1)), *map(completion, range(1, agents + 1))]
    assert machine.start(path, 1.0)
    assert machine.episode.request_outstanding
    assert not machine.start(path, 1.0)
    path.came = []
    if prepared:
        path.prepare()
    for data in comes:
        assert path.completing == (len(path.came) >= agents)
        assert path.take(data)
    machine.ran(path)
    found = path.outcomes()
    assert [of.outputs.tolist() for of in found.values()] == [[at, at + 1] for at in range(1, agents + 1)]
    assert all(of.outputs.flags.writeable for of in found.values())
    assert not machine.episode.request_outstanding
    assert machine.episode.stepped
    latest = machine.episode.latest_completion(agents)
    assert latest is not None
    assert latest.outputs.tolist() == [agents, agents + 1]
    if agents == 1:
        for _ in range(2):
            assert path.outcome().infos.tolist() == [3.0]
            path.prepare()
    machine.begin(step(machine, path), 2.0)
    assert machine.fast_path is path
    for data in comes:
        machine.receive(data, 2.1)
    assert machine.result().path is path
    assert machine.clock.count == 3


STATES = [
    ("foreign", frozenset({"agent9"})),
    ("lost", SessionLost("away")),
    ("episode", Episode(doubt="a dog ate it")),
    ("episode", Episode(reset_outstanding=True)),
    ("episode", Episode(request_outstanding=True)),
    ("clock", StepClock()),
]


@pytest.mark.parametrize("name, state", STATES)
def test_no_driver_runs_a_step_by_itself_whose_course_is_not_known(name: str, state: object) -> None:
    machine, _ = on_stage(NERD)
    setattr(machine, name, state)
    assert not machine.start(path_of()[0], 1.0)


def test_a_step_that_a_driver_left_goes_on_message_by_message_with_its_own_limit() -> None:
    stage = Stage(NERD, 2)
    m = stage.machine
    path = FastPath(stage.requests, m.outgoing, pipelining=False)
    assert m.start(path, 0.0)
    path.came = [ack(1)]
    m.begin(fall_back(m, path), 0.2)
    assert m.deadline == 0.25
    stage.give(acknowledged(2)).wait(9)
    assert stage.sent[0][1].encode()[:2] == bytes((0x56, 1))
    assert m.now == pytest.approx(3.0)


@BOTH
def test_what_an_episode_asks_beside_its_steps_are_three_looks_at_the_clock_and_two_at_the_agents(
    profile: Profile,
) -> None:
    player, steps = Player(profile), 20
    assert player.episode(3) == ""
    before = len(player.pair.sent)
    assert player.episode(steps, seed=8) == ""
    codes = [datagram.data[0] for datagram in player.pair.sent[before:] if datagram.to_server]
    assert codes.count(Code.GET_VALUE) == 3
    seeded = [Code.SET_VALUE] if profile is NERD else []
    overview = [Code.GET_AGENT_OVERVIEW, Code.AGENT_OVERVIEW_ACK]
    assert codes[: len(seeded) + 4] == [*overview, *seeded, Code.GET_VALUE, Code.RESET_SIMULATION]
    assert len(codes) == 3 + 2 + len(seeded) + 2 * 2 + 2 * steps


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
def test_a_step_takes_one_round_trip_or_one_for_each_request_and_completion(
    profile: Profile, agents: int
) -> None:
    player = Player(profile, agents, fault=lambda _: (0.04,))
    player.begin(1)
    trips = 1 if profile.pipelining or agents == 1 else 2 * agents
    assert max(player.steps(18)) < 0.0802 * trips
    assert player.told(0) == ""
    assert player.sent(REQUEST) == agents * 19


@BOTH
@pytest.mark.parametrize("agents", [1, 3])
def test_round_trips_that_look_like_silence_cost_time_and_no_step(profile: Profile, agents: int) -> None:
    player = Player(profile, agents, limits=Limits())
    player.pair.fault = lambda _: (0.2,)
    player.reset()
    player.steps(12)
    assert player.told(0) == ""
    assert player.sent(REQUEST) == agents * 12
