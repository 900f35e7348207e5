"""Clients of the hub that say what no environment says, and those who only look on: nobody else is harmed by them."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.replies import Feedbacks, Refusal
from ospbridge.hub.requests import AnnotatedStep, Attach, Detach, Hello, HubRequest, Note, Reset, Status, Step
from ospbridge.hub.status import StatusReply
from ospbridge.osp.profile import DOCUMENT
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line, acting, again, in_thread, serving, values

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
ACTION = values(0.25).tobytes()
NOTE = Note(ACTION, -0.5)
FLOOD = 200


async def refused(line: Line, request: HubRequest, why: str) -> None:
    answer = await in_thread(line.ask, request)
    assert isinstance(answer, Refusal)
    assert why in answer.message


async def test_a_step_before_any_hello_costs_its_own_connection_and_no_other(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub.sock"
    async with serving(document, path, spin=spin):
        with closing(Line(path)) as line:
            await refused(line, Step([("agent1", ACTION)]), "expected a hello, got Step")
        with closing(await in_thread(Line.playing, path, "agent1")) as other:
            assert isinstance(await in_thread(other.ask, *acting(0.25)), Feedbacks)


async def test_what_no_environment_says_is_refused_and_its_episode_goes_on(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    not_mine = "agent 'agent2' is not attached by this connection"
    path = tmp_path / "hub.sock"
    async with serving(document, path, spin=spin):
        with closing(await in_thread(Line.playing, path, "agent1")) as line:
            for said, why in (
                (Hello(VERSION, "line"), "a second hello"),
                (Attach(["agent1"]), "attached to that agent already"),
                (Reset(["agent2"], 5), not_mine),
                (Detach(["agent2"]), not_mine),
                (AnnotatedStep([("agent1", ACTION, NOTE)]), "without saying that it annotates"),
                (AnnotatedStep([("agent2", ACTION, NOTE)]), not_mine),
            ):
                await refused(line, said, why)
                assert isinstance(await in_thread(line.ask, *acting(0.25)), Feedbacks)
        with closing(Line(path)) as line:
            await in_thread(line.ask, Hello(VERSION, "line"))
            await refused(line, Reset([], 5), "attached to no agent")


@pytest.mark.parametrize(
    "request_", [Step([("nobody", ACTION)]), Status()], ids=["refused steps", "questions"]
)
async def test_whoever_says_much_at_once_gives_way_to_others(
    document: UdpSimulator, tmp_path: Path, request_: HubRequest
) -> None:
    path = tmp_path / "hub.sock"
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    def hear_all() -> None:
        for _ in range(FLOOD):
            line.hear()

    async with serving(document, path, spin=True):
        with closing(Line(path)) as line:
            await in_thread(line.ask, Hello(VERSION, "line"))
            async with trio.open_nursery() as nursery:
                line.say_bytes(line.frame(request_) * FLOOD)
                nursery.start_soon(take_turns)
                await in_thread(hear_all)
                nursery.cancel_scope.cancel()
    assert turns >= FLOOD / 2


@pytest.mark.parametrize("agents", [["agent"], ["agent1", "agent2"]], ids=["alone", "one of two"])
async def test_who_only_looks_on_is_answered_while_a_step_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: list[str]
) -> None:
    # So that it still leads when the step comes.
    monkeypatch.setattr(hub_watch, "LINGER", 0.3)
    path = tmp_path / "hub.sock"
    world = SyntheticWorld(2, 3, agents=len(agents))
    with UdpSimulator(world, port=0, profile=DOCUMENT) as simulator:
        async with serving(simulator, path, spin=True) as conductor:
            player = await in_thread(Line.playing, path, agents[0])
            onlooker = Line(path)
            await in_thread(onlooker.ask, Hello(VERSION, "onlooker"))

            def talk() -> int:
                player.ask(*acting(0.25, agent=agents[0]))
                for _ in range(3):
                    onlooker.ask(Status())
                    time.sleep(0.01)
                    player.ask(*again(0.25))
                world._think = 0.5
                before = conductor.steps
                player.say(*again(0.25))
                while conductor.busy_since is None:
                    time.sleep(0.001)
                told = onlooker.ask(Status())
                assert isinstance(told, StatusReply)
                player.hear()
                return told.steps - before

            # Told before the step was over.
            assert await in_thread(talk) == 0
            player.close()
            onlooker.close()
