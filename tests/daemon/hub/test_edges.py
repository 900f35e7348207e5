"""Clients of the hub that say what no environment says, and those who only look on: nobody else is harmed by them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trio

from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.replies import Feedbacks, Refusal
from ospbridge.hub.requests import (
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
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.hubs import Line, serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
IN_THREAD = trio.to_thread.run_sync
ACTION = np.full(2, 0.25, np.float32).tobytes()
FLOOD = 200


async def at_rest(line: Line) -> Line:
    """A line whose connection waits for what it says next."""
    await trio.sleep(0.1)
    return line


def hear_all(line: Line) -> None:
    for _ in range(FLOOD):
        line.hear()


async def test_a_step_before_any_hello_costs_its_own_connection_and_no_other(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub.sock"
    async with serving(document, path, spin=spin):
        line = await at_rest(Line(path))
        refused = await IN_THREAD(line.ask, Step([("agent1", ACTION)]))
        assert isinstance(refused, Refusal)
        assert "expected a hello, got Step" in refused.message
        line.close()
        other = await IN_THREAD(Line.playing, path, "agent1")
        assert isinstance(await IN_THREAD(other.ask, Step([("agent1", ACTION)])), Feedbacks)
        other.close()


NOTE = Note(ACTION, -0.5)


@pytest.mark.parametrize(
    "said, why",
    [
        (Hello(VERSION, "line"), "a second hello"),
        (Attach(["agent1"]), "attached to that agent already"),
        (Reset(["agent2"], 5), "agent 'agent2' is not attached by this connection"),
        (Detach(["agent2"]), "agent 'agent2' is not attached by this connection"),
        (AnnotatedStep([("agent1", ACTION, NOTE)]), "without saying that it annotates"),
        (AnnotatedStep([("agent2", ACTION, NOTE)]), "agent 'agent2' is not attached by this connection"),
    ],
    ids=lambda given: type(given).__name__ if not isinstance(given, str) else "",
)
async def test_what_no_environment_says_is_refused_and_its_episode_goes_on(
    document: UdpSimulator, tmp_path: Path, spin: bool, said: HubRequest, why: str
) -> None:
    path = tmp_path / "hub.sock"
    async with serving(document, path, spin=spin):
        line = await IN_THREAD(Line.playing, path, "agent1")
        refused = await IN_THREAD(line.ask, said)
        assert isinstance(refused, Refusal)
        assert why in refused.message
        assert isinstance(await IN_THREAD(line.ask, Step([("agent1", ACTION)])), Feedbacks)
        line.close()


async def test_a_reset_by_a_client_without_agents_is_refused(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    path = tmp_path / "hub.sock"
    async with serving(document, path, spin=spin):
        line = Line(path)
        await IN_THREAD(line.ask, Hello(VERSION, "line"))
        refused = await IN_THREAD(line.ask, Reset([], 5))
        assert isinstance(refused, Refusal)
        assert "attached to no agent" in refused.message
        line.close()


@pytest.mark.parametrize(
    "request_", [Step([("nobody", ACTION)]), Status()], ids=["refused steps", "questions"]
)
async def test_whoever_says_much_at_once_gives_way_to_others(
    document: UdpSimulator, tmp_path: Path, spin: bool, request_: HubRequest
) -> None:
    path = tmp_path / "hub.sock"
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with serving(document, path, spin=spin):
        line = Line(path)
        await IN_THREAD(line.ask, Hello(VERSION, "line"))
        async with trio.open_nursery() as nursery:
            line.say_bytes(line.frame(request_) * FLOOD)
            nursery.start_soon(take_turns)
            await IN_THREAD(hear_all, line)
            nursery.cancel_scope.cancel()
        line.close()
    assert turns >= FLOOD / 2


@pytest.mark.parametrize("agents", [["agent"], ["agent1", "agent2"]], ids=["alone", "one of two"])
async def test_who_only_looks_on_is_answered_while_a_step_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agents: list[str]
) -> None:
    # So that it still leads when the step comes.
    monkeypatch.setattr(hub_watch, "LINGER", 0.3)
    path = tmp_path / "hub.sock"
    named, act = Step([(agents[0], ACTION)]), Again(ACTION)
    world = SyntheticWorld(2, 3, agents=len(agents))
    with UdpSimulator(world, port=0, profile=DOCUMENT) as simulator:
        async with serving(simulator, path, spin=True) as conductor:
            player = await IN_THREAD(Line.playing, path, agents[0])
            onlooker = Line(path)
            await IN_THREAD(onlooker.ask, Hello(VERSION, "onlooker"))

            def talk() -> int:
                player.ask(named)
                for _ in range(3):
                    onlooker.ask(Status())
                    time.sleep(0.01)
                    player.ask(act)
                world._think = 1.5
                onlooker.ask(Status())
                time.sleep(0.01)
                before = conductor.steps
                player.say(act)
                time.sleep(0.2)
                told = onlooker.ask(Status())
                assert isinstance(told, StatusReply)
                player.hear()
                return told.steps - before

            # Told before the step was over.
            assert await IN_THREAD(talk) == 0
            player.close()
            onlooker.close()
