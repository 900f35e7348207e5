"""No restart comes right behind a goodbye, and nobody joins right behind a restart: a real server may die of it."""

from __future__ import annotations

from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ospbridge.interface import Endpoint
from ospbridge.osp.codes import Code
from ospbridge.osp.server.machine import ServerMachine
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.session import settling
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.settling import GOODBYES, Settling
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback


@pytest.fixture
def simulator(profile: Profile) -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile) as running:
        yield running


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[int, float]:
    """When a handler was sent a code last."""
    times: dict[int, float] = {}
    receive = ServerMachine.receive

    def noted(machine: ServerMachine, handler_id: int, data: bytes, now: float) -> None:
        times[data[0]] = monotonic()
        receive(machine, handler_id, data, now)

    monkeypatch.setattr(ServerMachine, "receive", noted)
    return times


def restart(address: str, leases: Path) -> None:
    with BlockingSession.connect(address, leases=leases) as session:
        session.restart_communication()


def restart_by_trio(address: str, leases: Path) -> None:
    async def restarts() -> None:
        async with await TrioSession.connect(address, leases=leases) as session:
            await session.restart_communication()

    trio.run(restarts)


BOTH = pytest.mark.parametrize("restarts", [restart, restart_by_trio])


@BOTH
def test_a_restart_waits_behind_the_goodbye_of_a_dead_session(
    restarts: Callable[..., Any], simulator: UdpSimulator, heard: dict[int, float], tmp_path: Path
) -> None:
    address = str(simulator.address)
    dead = BlockingSession.connect(address, leases=tmp_path)
    dead.register("agent")
    dead.disown()
    restarts(address, tmp_path)
    assert heard[Code.RESET_COMMUNICATION] - heard[Code.END_COMMUNICATION] > RESTART_SETTLES * 0.9


@BOTH
def test_a_restart_waits_behind_the_goodbye_of_another_session_of_this_process(
    restarts: Callable[..., Any], simulator: UdpSimulator, heard: dict[int, float], tmp_path: Path
) -> None:
    address = str(simulator.address)
    BlockingSession.connect(address, leases=tmp_path).close()
    restarts(address, tmp_path)
    assert heard[Code.RESET_COMMUNICATION] - heard[Code.END_COMMUNICATION] > RESTART_SETTLES * 0.9


def test_nothing_is_waited_for_where_nobody_was_told_goodbye(simulator: UdpSimulator, tmp_path: Path) -> None:
    with BlockingSession.connect(str(simulator.address), leases=tmp_path) as session:
        assert GOODBYES.left(session.server) == 0.0


@BOTH
def test_nobody_joins_right_behind_a_restart_of_this_process(
    restarts: Callable[..., Any], simulator: UdpSimulator, heard: dict[int, float], tmp_path: Path
) -> None:
    address = str(simulator.address)
    for _ in range(2):
        before = heard.get(Code.RESET_COMMUNICATION, 0.0)
        restarts(address, tmp_path)
        assert heard[Code.RESET_COMMUNICATION] - before > RESTART_SETTLES * 0.9


def test_what_is_settled_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(settling, "monotonic", lambda: now)
    at, done = partial(Endpoint, "127.0.0.1"), Settling()
    for port in range(1, 10):
        done.note(at(port))
        assert done.left(at(port)) == RESTART_SETTLES
        now += 0.3
    assert len(done) == 2
