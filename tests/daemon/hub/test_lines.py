"""Lines that speak in pieces, early and together, while others come, go and hang up: every reply is its own step's."""

from __future__ import annotations

import gc
import random
from functools import partial
from threading import Event, get_native_id
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.daemon.hub.connection import HubConnection
from ospbridge.daemon.lockstep import ResetPolicy
from ospbridge.hub.replies import Attached, Feedbacks, Refusal
from ospbridge.hub.requests import VERSION, Attach, Hello, Reset, Status
from ospbridge.hub.status import StatusReply
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line, acting, again, at_once, in_thread, left, observed, play, serving, wanted
from tests.daemon.processes import descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.hub.requests import HubRequest

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
AGENTS = ("agent1", "agent2", "agent3")
STEPS = 60
EPISODES = 4


@pytest.fixture(params=[0.0, 0.002], ids=["at once", "2 ms"])
def three(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    """A simulator of three agents that takes its time, or does not."""
    world = SyntheticWorld(2, 3, agents=3, think=request.param)
    with UdpSimulator(world, port=0, profile=DOCUMENT) as running:
        yield running


def step(agent: str, number: float) -> HubRequest:
    (request,) = acting(number, agent=agent)
    return request


def talk(path: Path, agent: str) -> None:
    """Say one step or several at once, whole or in pieces, and compare what each brought."""
    chance = random.Random(agent)
    line = Line.playing(path, agent)
    numbers = [chance.randrange(1024) / 1024 for _ in range(STEPS)]
    done = 0
    while done < STEPS:
        some = numbers[done : done + chance.choice([1, 1, 1, 2, 5])]
        recurs = done > 0 and chance.random() < 0.5
        data = b"".join(line.frame(*again(n)) if recurs else line.frame(step(agent, n)) for n in some)
        asks = chance.random() < 0.1
        data += line.frame(Status()) if asks else b""
        at = chance.randrange(1, len(data)) if chance.random() < 0.4 else len(data)
        line.say_bytes(data[:at])
        line.say_bytes(data[at:])
        for number in some:
            done += 1
            assert observed(line.hear()) == wanted(number, done)
        if asks:
            assert isinstance(line.hear(), StatusReply)
    line.close()


def come_and_go(path: Path, over: Event) -> None:
    """Half a message, a request whose reply is not awaited, a step for somebody else's agent; and gone."""
    steal = Line.frame(step("agent1", 0.5))
    while not over.wait(0.002):
        for said in (b"\x05", Line.frame(Status()), steal, steal[:9]):
            line = Line(path)
            line.ask(Hello(VERSION, "another"))
            line.say_bytes(said)
            line.close()


@pytest.mark.parametrize("linger", [0.001, None], ids=["leading", "never leading"])
async def test_every_reply_is_that_of_its_own_step(
    three: UdpSimulator, tmp_path: Path, linger: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if linger is not None:
        monkeypatch.setattr(hub_watch, "LINGER", linger)
    path, over = tmp_path / "hub", Event()
    async with serving(three, path, spin=linger is not None, quorum=3) as conductor:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, come_and_go, path, over)
            await at_once(*(partial(talk, path, agent) for agent in AGENTS))
            over.set()
        assert conductor.steps == STEPS + 1
        assert conductor.rebuilds == 0


def play_and_leave(path: Path, agent: str) -> None:
    """Episodes that end by hanging up, amid a step more often than not; whatever is asked is answered."""
    chance = random.Random(agent)
    for _ in range(EPISODES):
        line = attached(path, agent)
        observed(line.ask(Reset(5, get_native_id())))
        for _ in range(chance.randrange(30)):
            reply = line.ask(step(agent, 0.5))
            assert isinstance(reply, Feedbacks)
            if reply.agents[0].truncated:
                break
        if chance.random() < 0.7:
            line.say(step(agent, 0.5))
        line.close()


def attached(path: Path, agent: str) -> Line:
    """As soon as the hub has noticed that the one before is gone."""
    while True:
        line = Line(path)
        line.ask(Hello(VERSION, "line"))
        reply = line.ask(Attach([agent]))
        if isinstance(reply, Attached):
            return line
        assert isinstance(reply, Refusal)
        assert reply.kind == "AgentTaken"
        line.close()


@pytest.mark.parametrize("policy, spin", [(ResetPolicy.ALL, False), (ResetPolicy.ANY, True)])
async def test_nobody_waits_for_those_who_hang_up(
    document: UdpSimulator, tmp_path: Path, policy: ResetPolicy, spin: bool
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path, spin=spin, reset_policy=policy, limits=Limits(step=20.0)) as conductor:
        await at_once(*(partial(play_and_leave, path, agent) for agent in AGENTS[:2]))
        await left(conductor)
        assert conductor.rebuilds == 0


async def test_whoever_is_gone_is_freed_with_its_buffers(document: UdpSimulator, tmp_path: Path) -> None:
    """And not only once Python looks for circles; so are its descriptors, also those of memory that was shared."""
    path = tmp_path / "hub"
    hello = Line.frame(Hello(VERSION, "line"))
    nonsense = b"\x02\x00\x00\x00\xc1\xc1"

    def connections() -> int:
        return sum(type(thing) is HubConnection for thing in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        async with serving(document, path) as conductor:
            before = 0
            for _ in range(2):
                await in_thread(play, path, "agent1", 1)
                for said in (hello, hello + Line.frame(Attach(["agent1"]))[:-3], hello + nonsense, nonsense):
                    line = Line(path)
                    line.say_bytes(said)
                    await in_thread(line.hear)
                    line.close()
                await left(conductor)
                # Within the time of ``serving``. The first round opens what stays.
                while connections() or (before and descriptors() > before):
                    await trio.sleep(0.05)
                before = descriptors()
    finally:
        gc.enable()
