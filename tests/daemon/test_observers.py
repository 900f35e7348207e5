"""Those who look on: what they are told, what they lose, and that nobody waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trio

from ospbridge.daemon import observers as bounds
from ospbridge.errors import AgentNotFound, LocalProtocolError, SessionLost
from ospbridge.hub.replies import Kind, Moment
from ospbridge.task.plain import PlainTask
from tests.daemon.running import LocalDaemon, await_line, seat_of, values
from tests.daemon.stage import (
    FakeSession,
    agent,
    attach,
    conductor_of,
    play,
    together,
)

if TYPE_CHECKING:
    from ospbridge.daemon.conductor import Conductor
    from ospbridge.simulator.udp import UdpSimulator

ME = object()


async def seen(conductor: Conductor, name: str = "a", after: int = 0) -> list[Moment]:
    return (await conductor.observers.since(name, ME, after, 0.0)).moments


def floats(data: bytes) -> list[float]:
    return [float(number) for number in np.frombuffer(data, "<f4")]


@pytest.mark.trio
async def test_an_observer_is_told_what_the_driver_is_told(session: FakeSession) -> None:
    session.ending = {"a": 2}
    conductor = conductor_of(session)
    conductor.observers.join("a", ME)
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    await play(conductor, a, 0.5)
    last = await play(conductor, a, 0.25)
    assert last.terminated
    reset, first, second = await seen(conductor)
    assert [(m.number, m.kind, m.episode, m.step, m.seed) for m in (reset, first, second)] == [
        (1, Kind.RESET, 1, 0, 7),
        (2, Kind.STEP, 1, 1, 7),
        (3, Kind.STEP, 1, 2, 7),
    ]
    assert [floats(m.inputs) for m in (reset, first, second)] == [[], [0.5], [0.25]]
    assert [floats(m.observation) for m in (reset, first, second)] == [[0.0], [0.5], [0.25]]
    assert (floats(second.infos), second.reward, second.terminated) == ([1.0, 1.0], 1.0, True)
    assert not first.terminated
    await conductor.reset([a], 8, 1)
    (again,) = await seen(conductor, after=3)
    assert (again.kind, again.episode, again.step, again.seed) == (Kind.RESET, 2, 0, 8)


@pytest.mark.trio
async def test_who_asks_too_rarely_is_told_how_many_moments_were_dropped(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_KEPT", 5)
    monkeypatch.setattr(bounds, "MOST_TOLD", 3)
    conductor = conductor_of(session)
    conductor.observers.join("a", ME)
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    for _ in range(11):
        await play(conductor, a, 0.5)
    told = await conductor.observers.since("a", ME, 2, 0.0)
    assert ([m.number for m in told.moments], told.dropped) == ([8, 9, 10], 5)
    told = await conductor.observers.since("a", ME, 10, 0.0)
    assert ([m.number for m in told.moments], told.dropped) == ([11, 12], 0)
    told = await conductor.observers.since("a", ME, 99, 0.0)
    assert (told.moments, told.dropped) == ([], 0)


@pytest.mark.trio
async def test_what_is_kept_and_told_is_bounded_in_bytes(
    session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 4 + 4 + 8
    monkeypatch.setattr(bounds, "LARGEST_KEPT", 4 * each)
    monkeypatch.setattr(bounds, "LARGEST_TOLD", 1)
    conductor = conductor_of(session)
    conductor.observers.join("a", ME)
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    for _ in range(10):
        await play(conductor, a, 0.5)
    told = await conductor.observers.since("a", ME, 0, 0.0)
    assert ([m.number for m in told.moments], told.dropped) == ([8], 7)


@pytest.mark.trio
async def test_a_question_waits_for_news_and_no_longer_than_it_says(
    session: FakeSession, autojump_clock: object
) -> None:
    conductor = conductor_of(session)
    conductor.observers.join("a", ME)
    a = attach(conductor, "a")
    began = trio.current_time()
    assert (await conductor.observers.since("a", ME, 0, 3.0)).moments == []
    await together(lambda: conductor.observers.since("a", ME, 0, 10.0), lambda: conductor.reset([a], 7, 1))
    assert trio.current_time() - began == pytest.approx(3.0)


@pytest.mark.trio
async def test_only_agents_that_there_are_can_be_observed(session: FakeSession) -> None:
    conductor = conductor_of(session)
    with pytest.raises(AgentNotFound, match="a, b"):
        conductor.observers.join("c", ME)
    with pytest.raises(LocalProtocolError, match="does not observe"):
        await conductor.observers.since("a", ME, 0, 0.0)
    conductor.observers.join("a", ME)
    conductor.lockstep.take_agents([PlainTask(agent("a", low=-2.0), bounded=True)])
    with pytest.raises(SessionLost, match="another interface"):
        await conductor.observers.since("a", ME, 0, 0.0)
    assert conductor.observers.join("a", ME)[1] == 0
    assert await seen(conductor) == []


@pytest.mark.loopback
def test_an_observer_that_is_stopped_or_killed_holds_up_nobody(document: UdpSimulator) -> None:
    code = (
        "from ospbridge.session.hub_client import HubClient\n"
        "observer = HubClient.connect().observe('agent1')\nprint('looking', flush=True)\n"
        "for moment in observer: pass\n"
    )
    command = [sys.executable, "-c", code]
    with (
        LocalDaemon(document.address),
        closing(seat_of("agent1")) as seat,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as onlooker,
    ):
        try:
            await_line(onlooker, "looking")
            seat.reset(5)
            for number in (signal.SIGSTOP, signal.SIGKILL):
                os.kill(onlooker.pid, number)
                assert not any(seat.step(values(0.5)).truncated for _ in range(200))
        finally:
            onlooker.kill()
