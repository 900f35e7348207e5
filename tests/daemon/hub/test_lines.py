"""Lines that speak in pieces, early and together, and what else they may say: every reply is its own step's."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from threading import Event, Thread, get_native_id
from typing import Any

import numpy as np
import pytest
import trio

from ospbridge.daemon import barrier
from ospbridge.daemon.hub import connection as hub_connection
from ospbridge.daemon.hub.connection import HubConnection
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.hub.replies import Attached, Feedbacks, Refusal
from ospbridge.hub.requests import (
    VERSION,
    Again,
    AnnotatedStep,
    Attach,
    Detach,
    Hello,
    HubRequest,
    Note,
    Reset,
    Status,
    Step,
)
from ospbridge.hub.status import StatusReply
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.plain import PlainTask
from tests.daemon.hubs import Line, acting, again, observed, play, values, wanted
from tests.daemon.running import LocalDaemon, at_once, descriptors, until

pytestmark = pytest.mark.loopback
AGENTS = ("agent1", "agent2", "agent3")
STEPS = 60
EPISODES = 4


@pytest.fixture
def daemon(document: UdpSimulator, spin: bool) -> Iterator[LocalDaemon]:
    with LocalDaemon(document.address, spin=spin) as running:
        yield running


@pytest.fixture
def line(daemon: LocalDaemon) -> Iterator[Line]:
    """Somebody who plays ``agent1`` there."""
    with closing(Line.playing("agent1")) as found:
        yield found


def left(daemon: LocalDaemon) -> None:
    """Until nobody is attached."""
    until(lambda: not daemon.conductor.lockstep.attachments)


# --- several at once -------------------------------------------------------------------------------------------------


@pytest.fixture(params=[0.0, 0.002], ids=["at once", "2 ms"])
def three(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    """A simulator of three agents that takes its time, or does not."""
    world = SyntheticWorld(2, 3, agents=3, think=request.param)
    with UdpSimulator(world, port=0, profile=DOCUMENT) as running:
        yield running


def talk(agent: str) -> None:
    """Say one step or several at once, whole or in pieces, and compare what each brought."""
    chance = random.Random(agent)
    line = Line.playing(agent)
    numbers = [chance.randrange(1024) / 1024 for _ in range(STEPS)]
    done = 0
    while done < STEPS:
        some = numbers[done : done + chance.choice([1, 1, 1, 2, 5])]
        recurs = done > 0 and chance.random() < 0.5
        data = Line.frame(*(again(number) if recurs else acting(number, agent) for number in some))
        asks = chance.random() < 0.1
        data += Line.frame(Status()) if asks else b""
        at = chance.randrange(1, len(data)) if chance.random() < 0.4 else len(data)
        line.say(data[:at])
        line.say(data[at:])
        for number in some:
            done += 1
            assert observed(line.hear()) == wanted(number, done)
        if asks:
            assert isinstance(line.hear(), StatusReply)
    line.close()


def come_and_go(over: Event) -> None:
    """Half a message, a request whose reply is not awaited, a step for somebody else's agent; and gone."""
    steal = Line.frame(acting(0.5))
    while not over.wait(0.002):
        for said in (b"\x05", Line.frame(Status()), steal, steal[:9]):
            with closing(Line.greeted()) as line:
                line.say(said)


def test_every_reply_is_that_of_its_own_step(three: UdpSimulator, spin: bool) -> None:
    over = Event()
    with LocalDaemon(three.address, spin=spin, quorum=3) as daemon:
        others = Thread(target=come_and_go, args=(over,))
        others.start()
        try:
            at_once(*(partial(talk, agent) for agent in AGENTS))
        finally:
            over.set()
            others.join()
        assert daemon.conductor.steps == STEPS + 1
        assert daemon.conductor.rebuilds == 0


def play_and_leave(agent: str) -> None:
    """Episodes that end by hanging up, amid a step more often than not; whatever is asked is answered."""
    chance = random.Random(agent)
    for _ in range(EPISODES):
        line = attached(agent)
        observed(line.ask(Reset(5, get_native_id())))
        for _ in range(chance.randrange(30)):
            reply = line.ask(acting(0.5, agent))
            assert isinstance(reply, Feedbacks)
            if reply.agents[0].truncated:
                break
        if chance.random() < 0.7:
            line.say(Line.frame(acting(0.5, agent)))
        line.close()


def attached(agent: str) -> Line:
    """As soon as the hub has noticed that the one before is gone."""
    while True:
        line = Line.greeted()
        reply = line.ask(Attach([agent]))
        if isinstance(reply, Attached):
            return line
        assert isinstance(reply, Refusal)
        assert reply.kind == "AgentTaken"
        line.close()


@pytest.mark.parametrize("policy, spin", [(ResetPolicy.ALL, False), (ResetPolicy.ANY, True)])
def test_nobody_waits_for_those_who_hang_up(document: UdpSimulator, policy: ResetPolicy, spin: bool) -> None:
    with LocalDaemon(document.address, spin=spin, reset_policy=policy, limits=Limits(step=20.0)) as daemon:
        at_once(*(partial(play_and_leave, agent) for agent in AGENTS[:2]))
        left(daemon)
        assert daemon.conductor.rebuilds == 0


def test_whoever_is_gone_is_freed_with_its_buffers(document: UdpSimulator) -> None:
    """And not only once Python looks for circles; so are its descriptors, also those of memory that was shared."""
    hello = Line.frame(Hello(VERSION, "line"))
    nonsense = b"\x02\x00\x00\x00\xc1\xc1"

    def freed(before: int) -> bool:
        kept = any(type(thing) is HubConnection for thing in gc.get_objects())
        return not kept and (not before or descriptors() <= before)

    gc.collect()
    gc.disable()
    try:
        with LocalDaemon(document.address) as daemon:
            before = 0
            for _ in range(2):
                play("agent1", 1)
                for said in (hello, hello + Line.frame(Attach(["agent1"]))[:-3], hello + nonsense, nonsense):
                    with closing(Line()) as line:
                        line.ask(said)
                left(daemon)
                # The first round opens what stays.
                until(partial(freed, before))
                before = descriptors()
    finally:
        gc.enable()


# --- steps that the hub takes without a task of their own ------------------------------------------------------------


def test_steps_that_recur_bring_what_all_others_do_whatever_comes_between(
    daemon: LocalDaemon, line: Line
) -> None:
    step = 0

    def steps(count: int) -> None:
        nonlocal step
        for _ in range(count):
            step += 1
            reply: Any = line.ask(again(step / 64))
            assert observed(reply) == wanted(step / 64, step)
            assert reply.seed == 5
            assert np.frombuffer(reply.rewards).tolist() == [0.0]

    step += 1
    assert observed(line.ask(acting(0.5))) == wanted(0.5, step)
    steps(3)
    # What is refused changes nothing.
    for wrong in (again(float("inf")), Again(bytes(4)), Step([("agent1", bytes(8)), ("agent2", b"")])):
        line.refusal(wrong)
        steps(2)
    assert isinstance(line.ask(Status()), StatusReply)
    steps(3)
    daemon.run(lambda: daemon.conductor.lockstep.cut_all("for a test", trio.current_time()))
    reply: Any = line.ask(again(0.5))
    (told,) = reply.agents
    assert (told.agent, told.truncated, told.reason, told.seed) == ("agent1", True, "for a test", 5)
    # Of the seed before nothing is left.
    for request in (Reset(6), acting(0.25)):
        reply = line.ask(request)
        assert reply.agents[0].seed == 6
    for number in (0.5, 0.75):
        reply = line.ask(again(number))
        assert reply.seed == 6
    # Given back, it is nobody's to step.
    line.ask(Detach())
    assert "not attached" in line.refusal(acting(0.5)).message
    assert "attached to no agent" in line.refusal(Reset(5)).message


class Limited(PlainTask):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.as_given = (-0.5, 0.5)

    def inputs(self, action: Any) -> Any:
        return np.clip(action, -0.5, 0.5)


def test_numbers_that_a_task_limits_are_limited_in_steps_that_recur_too(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, make_task=Limited), closing(Line.playing("*")) as line:
        line.ask(Step([(agent, values(0.25).tobytes()) for agent in AGENTS[:2]]))
        for step, number in enumerate((0.25, 0.75), 2):
            reply = line.ask(again(0.5, number))
            assert observed(reply) == [*wanted(0.5, step), *wanted(min(number, 0.5), step)]


@pytest.mark.parametrize("between", [None, Reset(5), Detach(), Attach(["agent2"])], ids=repr)
def test_one_step_more_is_refused_where_agents_may_have_come_and_gone(
    daemon: LocalDaemon, line: Line, between: HubRequest | None
) -> None:
    if between is not None:
        for request in (acting(0.5), again(0.5), between):
            assert not isinstance(line.ask(request), Refusal)
    steps = daemon.conductor.steps
    refused = line.refusal(again(0.5))
    assert refused.kind == "LocalProtocolError"
    assert "there was none before" in refused.message
    assert daemon.conductor.steps == steps


def test_who_does_not_read_the_replies_is_dismissed_and_its_agent_is_free(
    daemon: LocalDaemon, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_connection, "PATIENCE", 0.5)
    many = Line.frame(*[acting(0.5)] * 200)

    def pour() -> None:
        while True:
            line.say(many, within=0.2)

    with pytest.raises(OSError, match=r"timed out|Broken pipe|reset"):
        pour()
    left(daemon)
    play("agent1", 5)


def test_what_no_environment_says_is_refused_and_its_episode_goes_on(line: Line) -> None:
    action = values(0.25).tobytes()
    note = Note(action, -0.5)
    for said, why in (
        (Hello(VERSION, "line"), "a second hello"),
        (Attach(["agent1"]), "attached to that agent already"),
        (AnnotatedStep([("agent1", action, note)]), "without saying that it annotates"),
        (AnnotatedStep([("agent2", action, note)]), "agent 'agent2' is not attached by this connection"),
    ):
        assert why in line.refusal(said).message
        assert isinstance(line.ask(acting(0.25)), Feedbacks)


def test_an_action_that_comes_while_the_leader_gives_way_is_stepped_at_once(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It gives way after each step, and nobody else would have the step run for a long time.
    monkeypatch.setattr(hub_connection, "LINGER", 0.0)
    monkeypatch.setattr(barrier, "LASTS", 1000.0)
    with LocalDaemon(document.address, spin=True) as daemon:
        play("agent1", 300)
        assert daemon.conductor.steps == 301


# --- steps of who drives all agents, which are taken at once ---------------------------------------------------------


def test_one_that_hangs_up_in_such_a_step_leaves_the_agent_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub_connection, "LINGER", 0.3)
    world = SyntheticWorld(2, 3, agents=1, think=0.02)
    with (
        UdpSimulator(world, port=0, profile=DOCUMENT) as simulator,
        LocalDaemon(simulator.address, spin=True) as daemon,
    ):
        for _ in range(3):
            with closing(Line.playing("agent")) as line:
                for request in (acting(0.5, "agent"), again(0.25)):
                    line.ask(request)
                line.say(Line.frame(again(0.75)))
        left(daemon)
        play("agent", 5)
        assert daemon.conductor.rebuilds == 0


def test_who_drives_all_agents_has_their_steps_taken_at_once(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow this machine is, who leads goes on leading.
    monkeypatch.setattr(hub_connection, "LINGER", 0.3)
    taken: Counter[bool] = Counter()
    step = barrier.StepBarrier.step_at_once

    def spy(*arguments: Any) -> bool:
        over = step(*arguments)
        taken[over] += 1
        return over

    monkeypatch.setattr(barrier.StepBarrier, "step_at_once", spy)
    with LocalDaemon(document.address, spin=True) as daemon, closing(Line.playing("*")) as line:
        for _ in range(3):
            line.ask(Step([("agent1", values(0.25).tobytes()), ("agent2", values(0.5).tobytes())]))
            for number in range(2, 50):
                assert observed(line.ask(again(0.5, 0.75))) == [*wanted(0.5, number), *wanted(0.75, number)]
            assert isinstance(line.ask(Reset(5)), Feedbacks)
        assert [held.lengths[-1] for held in daemon.conductor.lockstep.held.values()] == [49, 49]
        assert daemon.conductor.steps == 4 + 3 * 49
    assert sum(taken.values()) > 10
