"""The fast path of a step: where it stands when it is left, and what it costs. Drivers' tests ask what leaves it."""

from __future__ import annotations

import numpy as np
import pytest

from ospbridge.errors import SessionLost
from ospbridge.interface import AgentInterface, InterfaceValue
from ospbridge.osp.client import Episode
from ospbridge.osp.clock import StepClock
from ospbridge.osp.codes import Code
from ospbridge.osp.fast_path import FastPath, StepRequest
from ospbridge.osp.messages import NextSimulationStepAck, StepCompleted
from ospbridge.osp.profile import DOCUMENT, NERD, Profile
from ospbridge.osp.step import PendingStep, continue_step
from ospbridge.osp.timing import Limits
from tests.osp.playing import DONE, REQUEST, Player
from tests.osp.stage import BOTH, Stage, on_stage
from tests.osp.stage import ack as acknowledged


def path_of(agents: int = 1, *, pipelining: bool = False) -> FastPath:
    one = (InterfaceValue("/one", 0.0, 1.0),)
    requests = tuple(
        StepRequest(AgentInterface(at, f"a{at}", one, one + one, one, ""), NERD)
        for at in range(1, agents + 1)
    )
    return FastPath(requests, pipelining=pipelining)


def completion(agent_id: int) -> bytes:
    numbers = np.arange(3, dtype=np.float32) + agent_id
    return StepCompleted(agent_id, numbers[:2], numbers[2:]).encode()


def ack(agent_id: int) -> bytes:
    return NextSimulationStepAck(agent_id).encode()


@pytest.mark.parametrize("pipelining", [False, True])
@pytest.mark.parametrize("came", range(6))
def test_where_it_stands_is_what_has_come(came: int, pipelining: bool) -> None:
    stage = Stage(DOCUMENT if pipelining else NERD, 3)
    path = path_of(3, pipelining=pipelining)
    path.came = [*(ack(at) for at in (1, 2, 3)), *(completion(at) for at in (1, 2, 3))][:came]
    pending = PendingStep(stage.machine, path)
    sent = 3 if pipelining else min(came + 1, 3)
    assert not pending.all_came()
    assert [request.agent_id for request in pending.unsent] == [1, 2, 3][sent:]
    assert pending.unacked == {1, 2, 3}.intersection([1, 2, 3][came:sent])
    assert pending.missing == [1, 2, 3][max(came - 3, 0) :]
    assert path.completing == (came >= 3)


@pytest.mark.parametrize("agents, prepared", [(1, True), (1, False), (2, True), (2, False)])
def test_a_driver_runs_a_step_by_itself(agents: int, *, prepared: bool) -> None:
    """And brings arrays that are the caller's own, whether they were prepared or not."""
    machine, _ = on_stage(NERD)
    path = path_of(agents)
    assert machine.start(path, 1.0)
    assert machine.episode.request_outstanding
    assert not machine.start(path, 1.0)
    if prepared:
        path.prepare()
    comes = [*map(ack, range(1, agents + 1)), *map(completion, range(1, agents + 1))]
    for data, (head, size, _, completes) in zip(comes, path.expected, strict=True):
        assert data.startswith(head)
        assert (len(data), data[0] == DONE) == (size, completes)
    path.came = comes
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
    assert machine.clock.count == 2


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
    assert not machine.start(path_of(), 1.0)


def test_a_step_that_a_driver_left_goes_on_message_by_message_with_its_own_limit() -> None:
    stage = Stage(NERD, 2)
    m = stage.machine
    path = FastPath(stage.requests, pipelining=False)
    assert m.start(path, 0.0)
    path.came = [ack(1)]
    m.begin(continue_step(m, path), 0.2)
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
