"""Between a session's first word and its agents: nobody gets in, and a simulator that is lost is joined again."""

from __future__ import annotations

import errno
import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon import service, supervisor
from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.settings import Settings
from ospbridge.errors import (
    ConfigurationError,
    OspBridgeError,
    SessionLost,
    SimulatorNotFound,
    StepUncertain,
)
from ospbridge.session.rebuild import CAPACITY
from ospbridge.session.trio_session import TrioSession
from tests.daemon.stage import ONE, Logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
WITHIN = 20.0


@pytest.fixture
def subscribing(monkeypatch: pytest.MonkeyPatch) -> list[OspBridgeError]:
    """What is raised instead of asking the simulator for events and values, one a time."""
    errors: list[OspBridgeError] = []
    subscribe = TrioSession.subscribe

    async def subscribed(session: TrioSession, tasks: Any) -> None:
        if errors:
            raise errors.pop(0)
        await subscribe(session, tasks)

    monkeypatch.setattr(TrioSession, "subscribe", subscribed)
    return errors


def made(simulator: UdpSimulator) -> Conductor:
    return Conductor(Settings(hub=Path("hub"), simulator=simulator.address))


@asynccontextmanager
async def running(simulator: UdpSimulator) -> AsyncIterator[Conductor]:
    conductor = made(simulator)

    async def run() -> NoReturn:
        await conductor.run()
        raise AssertionError("it ended")

    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await until(lambda: conductor.ready)
            yield conductor
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.005)


async def test_one_of_several_simulators_that_was_lost_too_often_is_joined_again_after_a_while(
    document: UdpSimulator, subscribing: list[OspBridgeError], monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor, other = made(document), made(document)
    subscribing += [SessionLost("it fell silent", hint="wait") for _ in range(CAPACITY + 1)]
    left = [conductor, other]
    pauses = trio.Event()
    sleep = trio.sleep

    async def asleep(seconds: float) -> None:
        if seconds == service.LOST_PAUSE:
            assert left == [other]
            assert conductor.given_up
            assert "joined again within 60 s" in conductor.connection_hint
            await pauses.wait()
        else:
            await sleep(seconds)

    monkeypatch.setattr(trio, "sleep", asleep)
    with capture_logs() as logs, trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service._keep, conductor, left)
            await until(lambda: conductor.given_up)
            pauses.set()
            await until(lambda: conductor.ready)
            assert not conductor.given_up
            assert left == [other, conductor]
            nursery.cancel_scope.cancel()
    (told,) = [line for line in logs if line["event"].startswith("a simulator is left alone")]
    assert "lost too often" in told["reason"]


async def test_steps_in_doubt_since_datagrams_come_twice_give_up_no_simulator(
    document: UdpSimulator,
) -> None:
    async with running(document) as conductor:
        supervised = conductor._supervisor
        for count in range(CAPACITY + 3):
            await until(lambda: conductor.ready)
            supervised.busy_since = trio.current_time()
            async with supervised.turn():
                supervised.give_up(StepUncertain("counted twice", by_network=True))
            supervised.busy_since = None
            supervised.changed()
            while conductor.rebuilds <= count:
                await trio.sleep(0.005)
        await until(lambda: conductor.ready)


async def test_a_simulator_that_comes_back_without_what_a_task_wants_is_told_and_tried_again(
    document: UdpSimulator, subscribing: list[OspBridgeError], monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    monkeypatch.setattr(supervisor, "UNFIT_PAUSE", 0.1)
    async with running(document) as conductor:
        subscribing += [ConfigurationError("there is no such event", hint="name another")] * 3
        async with await TrioSession.connect(document.address, reclaim_stale=False) as other:
            await other.restart_communication()
        await until(lambda: conductor.connection == "there is no such event")
        with pytest.raises(SimulatorNotFound, match="there is no such event"):
            conductor.attach(["agent1"], ONE)
        await until(lambda: conductor.ready)
        assert len(conductor.attach(["agent1"], ONE)) == 1
        assert conductor.rebuilds == 1
    (said,) = logs.of("the simulator came back otherwise")
    assert (said["reason"], said["hint"]) == ("there is no such event", "name another")


async def test_a_lack_of_descriptors_is_waited_out_and_told(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch, logs: Logs
) -> None:
    async def lacking(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(supervisor, "LOOK_EVERY", 0.05)
    async with running(document) as conductor:
        with monkeypatch.context() as patched:
            patched.setattr(TrioSession, "connect", lacking)
            conductor._supervisor.give_up(SessionLost("a test gives it up", hint="wait"))
            conductor._supervisor.changed()
            await until(lambda: "Too many open files" in conductor.connection)
            assert "ulimit" in conductor.connection_hint
        await until(lambda: conductor.ready)
    assert [line for line in logs if "Too many open files" in line.get("reason", "")]
