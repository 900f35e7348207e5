"""Agents that others hold are freed by force only where the user allowed it, and not for ever."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from ospbridge.errors import BarrierStuck, SessionLost
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from tests.daemon.running import LocalDaemon, seat_of, until, values

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("impatient")]
RESTARTED = "the communication is restarted"


@pytest.fixture
def vanished(simulator: UdpSimulator, tmp_path: Path) -> Iterator[BlockingSession]:
    """A client of another kind that took an agent, and will never vote or leave: it left no lease of ours."""
    session = BlockingSession.connect(simulator.address, leases=tmp_path / "elsewhere")
    session.register("agent1")
    with session:
        yield session


def test_an_agent_that_somebody_holds_is_taken_where_force_is_allowed(
    simulator: UdpSimulator, vanished: BlockingSession
) -> None:
    with LocalDaemon(simulator.address, force_restart=True, agents=("agent1",)) as daemon:
        (said,) = daemon.lines(RESTARTED)
        assert said["agents"] == ["agent1"]
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            seat.step(values(0.1))
        with pytest.raises(SessionLost):
            vanished.reset(1)


@pytest.mark.parametrize("agents", [("agent2",), ("agent1", "agent9")], ids=["others", "not all there"])
def test_nobody_is_disconnected_for_agents_that_are_not_wanted_or_not_all_there(
    simulator: UdpSimulator, vanished: BlockingSession, agents: tuple[str, ...]
) -> None:
    with LocalDaemon(simulator.address, ready=False, force_restart=True, agents=agents, wait=0.0) as daemon:
        until(lambda: daemon.error or daemon.conductor.ready)
        vanished.agents()
        assert vanished.controlled == ("agent1",)


@pytest.mark.usefixtures("vanished")
def test_a_world_that_waits_for_others_is_freed_where_force_is_allowed(simulator: UdpSimulator) -> None:
    with LocalDaemon(
        simulator.address, force_restart=True, agents=("agent2",), limits=Limits(reset=0.5)
    ) as daemon:
        with closing(seat_of("agent2")) as seat:
            with pytest.raises(BarrierStuck, match="agent1"):
                seat.reset(1)
            until(lambda: daemon.lines(RESTARTED) and daemon.conductor.ready)
            seat.reset(2)
            seat.step(values(0.1))
        (said,) = daemon.lines(RESTARTED)
        assert said["agents"] == ["agent1"]


def test_those_who_come_back_are_not_disconnected_for_ever(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons that want the same agent would evict each other without end."""
    monkeypatch.setattr("ospbridge.daemon.forcing.RESTARTS", 2)
    refused = "the communication is not restarted again so soon"

    def done(times: int) -> bool:
        return len([*daemon.lines(RESTARTED), *daemon.lines(refused)]) == times

    with LocalDaemon(document.address, force_restart=True, agents=("agent1",)) as daemon:
        for times in range(1, 4):
            with ExitStack() as stack:
                with daemon.stopped():
                    with BlockingSession.connect(document.address) as other:
                        other.restart_communication()
                    other = stack.enter_context(BlockingSession.connect(document.address))
                    other.register("agent1")
                until(partial(done, times))
                if times < 3:
                    daemon.rebuilt(times)
        assert (len(daemon.lines(RESTARTED)), len(daemon.lines(refused))) == (2, 1)
