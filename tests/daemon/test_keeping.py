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

from ospbridge.daemon import keeping, service
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
from tests.daemon.stage import ONE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from ospbridge.simulator.udp import UdpSimulator
    from ospbridge.task.base import Task

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
WITHIN = 20.0
at_once = TrioSession.subscribe


class Equipping:
    """Stands in for asking the simulator for events and values, which takes until it ``may`` end."""

    def __init__(self) -> None:
        self.reached = trio.Event()
        self.may = trio.Event()
        self.errors: list[OspBridgeError] = []
        """Raised instead, one a time."""

    async def __call__(self, session: TrioSession, tasks: Collection[Task]) -> None:
        self.reached.set()
        await self.may.wait()
        if self.errors:
            raise self.errors.pop(0)
        await at_once(session, tasks)


@pytest.fixture
def equipping(monkeypatch: pytest.MonkeyPatch) -> Equipping:
    made = Equipping()

    async def equip_in_time(session: TrioSession, tasks: Collection[Task]) -> None:
        await made(session, tasks)

    monkeypatch.setattr(TrioSession, "subscribe", equip_in_time)
    return made


@asynccontextmanager
async def running(simulator: UdpSimulator, **settings: Any) -> AsyncIterator[Conductor]:
    conductor = Conductor(Settings(hub=Path("hub"), simulator=simulator.address, **settings))

    async def run() -> NoReturn:
        await conductor.run()
        raise AssertionError("it ended")

    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            yield conductor
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.005)


async def test_one_of_several_simulators_that_was_lost_too_often_is_joined_again_after_a_while(
    document: UdpSimulator, equipping: Equipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    conductor = Conductor(Settings(hub=Path("hub"), simulator=document.address))
    other = Conductor(Settings(hub=Path("hub"), simulator=document.address))
    equipping.errors = [SessionLost("it fell silent", hint="wait") for _ in range(CAPACITY + 1)]
    equipping.may.set()
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
        for count in range(CAPACITY + 3):
            await until(lambda: conductor.ready)
            keeper = conductor._keeper
            keeper.busy = True
            async with keeper.turn():
                keeper.give_up(StepUncertain("counted twice", by_network=True))
            keeper.busy = False
            keeper.changed()
            while conductor.rebuilds <= count:
                await trio.sleep(0.005)
        await until(lambda: conductor.ready)


async def test_a_simulator_that_comes_back_without_what_a_task_wants_is_told_and_tried_again(
    document: UdpSimulator, equipping: Equipping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "UNFIT_PAUSE", 0.01)
    equipping.may.set()
    with capture_logs() as logs:
        async with running(document) as conductor:
            await until(lambda: conductor.ready)
            equipping.may = trio.Event()
            equipping.reached = trio.Event()
            equipping.errors = [ConfigurationError("there is no such event", hint="name another")] * 3
            async with await TrioSession.connect(document.address, reclaim_stale=False) as other:
                await other.restart_communication()
            await equipping.reached.wait()
            equipping.may.set()
            await until(lambda: conductor.connection == "there is no such event")
            with pytest.raises(SimulatorNotFound, match="there is no such event"):
                conductor.attach(["agent1"], ONE)
            await until(lambda: conductor.ready)
            assert len(conductor.attach(["agent1"], ONE)) == 1
            assert conductor.rebuilds == 1
    (said,) = [line for line in logs if line["event"] == "the simulator came back otherwise"]
    assert (said["reason"], said["hint"]) == ("there is no such event", "name another")


async def test_a_lack_of_descriptors_is_waited_out_and_told(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    may = trio.Event()
    connect = TrioSession.connect

    async def lacking(*arguments: Any, **options: Any) -> TrioSession:
        if tried and not may.is_set():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        tried.append(arguments)
        return await connect(*arguments, **options)

    tried: list[object] = []
    monkeypatch.setattr(TrioSession, "connect", lacking)
    monkeypatch.setattr(keeping, "LOOK_EVERY", 0.05)
    with capture_logs() as logs:
        async with running(document) as conductor:
            await until(lambda: conductor.ready)
            conductor._keeper.give_up(SessionLost("a test gives it up", hint="wait"))
            conductor._keeper.changed()
            await until(lambda: "Too many open files" in conductor.connection)
            assert "ulimit" in conductor.connection_hint
            may.set()
            await until(lambda: conductor.ready)
    assert [line for line in logs if "Too many open files" in line.get("reason", "")]
