"""Those who look on: what they are told, what they lose, and that nobody waits for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
import trio

from ospbridge.daemon import observers as bounds
from ospbridge.daemon.conductor import Conductor
from ospbridge.errors import AgentNotFound, LocalProtocolError, SessionLost
from ospbridge.hub.replies import Kind, Moment
from ospbridge.simulator.udp import UdpSimulator
from tests.daemon.running import LocalDaemon, await_lines, seat_of, values
from tests.daemon.stage import FakeSession, agent, attach, conductor_of, play, tasks, together

ME = object()


@pytest.fixture
def conductor(session: FakeSession) -> Conductor:
    """Whose agent "a" is observed."""
    conductor = conductor_of(session)
    conductor.observers.join("a", ME)
    return conductor


async def seen(conductor: Conductor, after: int = 0) -> tuple[list[Moment], int]:
    """And how many were dropped."""
    told = await conductor.observers.since("a", ME, after, 0.0)
    return told.moments, told.dropped


async def numbers(conductor: Conductor, after: int) -> tuple[list[int], int]:
    moments, dropped = await seen(conductor, after)
    return [moment.number for moment in moments], dropped


def floats(data: bytes) -> list[float]:
    return [float(number) for number in np.frombuffer(data, "<f4")]


async def steps(conductor: Conductor, count: int) -> None:
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    for _ in range(count):
        await play(conductor, a, 0.5)


@pytest.mark.trio
async def test_an_observer_is_told_what_the_driver_is_told(
    session: FakeSession, conductor: Conductor
) -> None:
    session.ending = {"a": 2}
    a = attach(conductor, "a")
    await conductor.reset([a], 7, 1)
    await play(conductor, a, 0.5)
    last = await play(conductor, a, 0.25)
    assert last.terminated
    moments, _ = await seen(conductor)
    assert [(m.number, m.kind, m.episode, m.step, m.seed) for m in moments] == [
        (1, Kind.RESET, 1, 0, 7),
        (2, Kind.STEP, 1, 1, 7),
        (3, Kind.STEP, 1, 2, 7),
    ]
    assert [floats(m.inputs) for m in moments] == [[], [0.5], [0.25]]
    assert [floats(m.observation) for m in moments] == [[0.0], [0.5], [0.25]]
    assert [m.terminated for m in moments] == [False, False, True]
    assert (floats(moments[2].infos), moments[2].reward) == ([1.0, 1.0], 1.0)
    await conductor.reset([a], 8, 1)
    ((again,), _) = await seen(conductor, after=3)
    assert (again.kind, again.episode, again.step, again.seed) == (Kind.RESET, 2, 0, 8)


@pytest.mark.trio
async def test_who_asks_too_rarely_is_told_how_many_moments_were_dropped(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_KEPT", 5)
    monkeypatch.setattr(bounds, "MOST_TOLD", 3)
    await steps(conductor, 11)
    assert await numbers(conductor, 2) == ([8, 9, 10], 5)
    assert await numbers(conductor, 10) == ([11, 12], 0)
    assert await numbers(conductor, 99) == ([], 0)


@pytest.mark.trio
async def test_what_is_kept_and_told_is_bounded_in_bytes(
    conductor: Conductor, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = 4 + 4 + 8
    monkeypatch.setattr(bounds, "LARGEST_KEPT", 4 * each)
    monkeypatch.setattr(bounds, "LARGEST_TOLD", 1)
    await steps(conductor, 10)
    assert await numbers(conductor, 0) == ([8], 7)


@pytest.mark.trio
async def test_a_question_waits_for_news_and_no_longer_than_it_says(
    conductor: Conductor, autojump_clock: object
) -> None:
    a = attach(conductor, "a")
    began = trio.current_time()
    assert (await conductor.observers.since("a", ME, 0, 3.0)).moments == []
    await together(lambda: conductor.observers.since("a", ME, 0, 10.0), lambda: conductor.reset([a], 7, 1))
    assert trio.current_time() - began == pytest.approx(3.0)


@pytest.mark.trio
async def test_only_agents_that_there_are_can_be_observed(conductor: Conductor) -> None:
    with pytest.raises(AgentNotFound, match="a, b"):
        conductor.observers.join("c", ME)
    with pytest.raises(LocalProtocolError, match="does not observe"):
        await conductor.observers.since("b", ME, 0, 0.0)
    conductor.lockstep.take_agents(tasks(agent("a", low=-2.0)))
    with pytest.raises(SessionLost, match="another interface"):
        await seen(conductor)
    assert conductor.observers.join("a", ME)[1] == 0
    assert await seen(conductor) == ([], 0)


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
            await_lines(onlooker, "looking")
            seat.reset(5)
            for number in (signal.SIGSTOP, signal.SIGKILL):
                os.kill(onlooker.pid, number)
                assert not any(seat.step(values(0.5)).truncated for _ in range(200))
        finally:
            onlooker.kill()
