"""Steps that the hub takes without a task of their own, and what else a connection may say or leave unsaid."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.daemon import barrier
from ospbridge.daemon.hub import stream as hub_stream
from ospbridge.daemon.hub import watch as hub_watch
from ospbridge.errors import LocalProtocolError
from ospbridge.hub.replies import Feedbacks, Refusal
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
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.task.plain import PlainTask
from tests.daemon.hubs import (
    Line,
    acting,
    again,
    in_thread,
    observed,
    play,
    serving,
    values,
    wanted,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ospbridge.daemon.conductor import Conductor

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


@asynccontextmanager
async def playing(
    simulator: UdpSimulator, path: Path, *, spin: bool
) -> AsyncIterator[tuple[Conductor, Line]]:
    """A hub, and somebody who plays ``agent1`` there."""
    async with serving(simulator, path, spin=spin) as conductor:
        line = await in_thread(Line.playing, path, "agent1")
        try:
            yield conductor, line
        finally:
            line.close()


async def test_steps_that_recur_bring_what_all_others_do_whatever_comes_between(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    step = 0
    async with playing(document, tmp_path / "hub", spin=spin) as (conductor, line):

        async def ask(request: HubRequest) -> Any:
            return await in_thread(line.ask, request)

        async def steps(count: int) -> None:
            nonlocal step
            for _ in range(count):
                step += 1
                number = step / 64
                assert observed(reply := await ask(*again(number))) == wanted(number, step)
                assert reply.seed == 5
                assert np.frombuffer(reply.rewards).tolist() == [0.0]

        step += 1
        assert observed(await ask(*acting(0.5))) == wanted(0.5, step)
        await steps(3)
        # What is refused changes nothing.
        for wrong in (*again(float("inf")), Again(bytes(4)), Step([("agent1", bytes(8)), ("agent2", b"")])):
            assert isinstance(await ask(wrong), Refusal)
            await steps(2)
        assert isinstance(await ask(Status()), StatusReply)
        await steps(3)
        conductor.lockstep.cut_all("for a test", trio.current_time())
        (told,) = (await ask(*again(0.5))).agents
        assert (told.agent, told.truncated, told.reason, told.seed) == ("agent1", True, "for a test", 5)
        # Of the seed before nothing is left.
        assert (await ask(Reset(6))).agents[0].seed == 6
        assert (await ask(*acting(0.25))).agents[0].seed == 6
        for number in (0.5, 0.75):
            assert (await ask(*again(number))).seed == 6
        # Given back, it is nobody's to step.
        await ask(Detach())
        refused = await ask(*acting(0.5))
        assert isinstance(refused, Refusal)
        assert "not attached" in refused.message
        refused = await ask(Reset(5))
        assert isinstance(refused, Refusal)
        assert "attached to no agent" in refused.message


class Limited(PlainTask):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.as_given = (-0.5, 0.5)

    def inputs(self, action: Any) -> Any:
        return np.clip(action, -0.5, 0.5)


async def test_numbers_that_a_task_limits_are_limited_in_steps_that_recur_too(
    document: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path, make_task=Limited):
        line = await in_thread(Line.playing, path, "*")
        first = Step([(agent, values(0.25).tobytes()) for agent in ("agent1", "agent2")])
        assert isinstance(await in_thread(line.ask, first), Feedbacks)
        for step, number in enumerate((0.25, 0.75), 2):
            reply = await in_thread(line.ask, Again(values(0.5).tobytes() + values(number).tobytes()))
            assert observed(reply) == [*wanted(0.5, step), *wanted(min(number, 0.5), step)]
        line.close()


@pytest.mark.parametrize("between", [None, Reset(5), Detach(), Attach(["agent2"])], ids=repr)
async def test_one_step_more_is_refused_where_agents_may_have_come_and_gone(
    document: UdpSimulator, tmp_path: Path, spin: bool, between: HubRequest | None
) -> None:
    async with playing(document, tmp_path / "hub", spin=spin) as (conductor, line):
        if between is not None:
            for request in (*acting(0.5), *again(0.5), between):
                assert not isinstance(await in_thread(line.ask, request), Refusal)
        steps = conductor.steps
        refused = await in_thread(line.ask, *again(0.5))
        assert isinstance(refused, Refusal)
        assert refused.kind == LocalProtocolError.__name__
        assert "there was none before" in refused.message
        assert conductor.steps == steps


async def test_who_does_not_read_the_replies_is_dismissed_and_its_agent_is_free(
    document: UdpSimulator, tmp_path: Path, spin: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_stream, "PATIENCE", 0.5)
    path = tmp_path / "hub"
    async with playing(document, path, spin=spin) as (conductor, line):
        many = b"".join(line.frame(request) for request in acting(*[0.5] * 200))

        def pour() -> None:
            while True:
                line.say_bytes(many, within=0.2)

        with pytest.raises(OSError, match=r"timed out|Broken pipe|reset"):
            await in_thread(pour)
        while conductor.lockstep.attachments:
            await trio.sleep(0.01)
        await in_thread(play, path, "agent1", 5)


async def test_what_no_environment_says_is_refused_and_its_episode_goes_on(
    document: UdpSimulator, tmp_path: Path, spin: bool
) -> None:
    not_mine = "agent 'agent2' is not attached by this connection"
    action = values(0.25).tobytes()
    note = Note(action, -0.5)
    async with playing(document, tmp_path / "hub", spin=spin) as (_, line):
        for said, why in (
            (Hello(VERSION, "line"), "a second hello"),
            (Attach(["agent1"]), "attached to that agent already"),
            (AnnotatedStep([("agent1", action, note)]), "without saying that it annotates"),
            (AnnotatedStep([("agent2", action, note)]), not_mine),
        ):
            refused = await in_thread(line.ask, said)
            assert isinstance(refused, Refusal)
            assert why in refused.message
            assert isinstance(await in_thread(line.ask, *acting(0.25)), Feedbacks)


async def test_an_action_that_comes_while_the_leader_gives_way_is_stepped_at_once(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It gives way after each step, and nobody else would have the step run for a long time.
    monkeypatch.setattr(hub_watch, "LINGER", 0.0)
    monkeypatch.setattr(barrier, "LASTS", 1000.0)
    path = tmp_path / "hub"
    async with serving(document, path, spin=True) as conductor:
        await in_thread(play, path, "agent1", 300)
        assert conductor.steps == 301
