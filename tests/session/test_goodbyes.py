"""No restart of the communication comes right behind a goodbye: a real server that is told both at once dies."""

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
from ospbridge.session import goodbyes
from ospbridge.session.blocking import BlockingSession
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
        assert goodbyes.settled_in(session.server) == 0.0


def test_goodbyes_are_forgotten_once_they_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(goodbyes, "monotonic", lambda: now)
    monkeypatch.setattr(goodbyes, "_said", {})
    at = partial(Endpoint, "127.0.0.1")
    for port in range(1, 10):
        goodbyes.said(at(port))
        assert goodbyes.settled_in(at(port)) == RESTART_SETTLES
        now += 0.3
    assert goodbyes._said.keys() == {at(8), at(9)}
