"""A session that ends between the answer to its INIT and its first agent: its place at the server is not lost."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ospbridge.errors import AgentTaken
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.timing import Limits
from ospbridge.session.arriving import Arrival
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import stale_leases
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.one_at_a_time import OneAtATime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.interface import Endpoint
    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback

VICTIM = """
import sys, time
from ospbridge.osp.client import connecting
from ospbridge.session.blocking import BlockingSession
connecting.COLLECT = float(sys.argv[2])
session = BlockingSession.connect(sys.argv[1])
time.sleep(60)
"""


def leases() -> list[Path]:
    return list((runtime_directory() / "leases").glob("*.lease"))


def killed(address: Endpoint, *, collecting: float) -> None:
    """A process is killed that was answered and asked for nothing. It awaits a second answer for ``collecting`` s."""
    with subprocess.Popen([sys.executable, "-c", VICTIM, str(address), str(collecting)]) as victim:
        give_up = time.monotonic() + 20
        try:
            while not leases() and time.monotonic() < give_up:
                time.sleep(0.02)
            # Without a lease it was answered long ago all the same.
        finally:
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait(10)


@pytest.fixture(params=["deaf to others", "one at a time"])
def server(request: pytest.FixtureRequest) -> Iterator[UdpSimulator | OneAtATime]:
    """One that takes one client only."""
    world = SyntheticWorld(2, 3)
    make: Callable[[], UdpSimulator | OneAtATime] = (
        (lambda: UdpSimulator(world, port=0, max_handlers=1))
        if request.param == "deaf to others"
        else (lambda: OneAtATime(world, DOCUMENT))
    )
    with make() as running:
        yield running


@pytest.fixture(params=[DOCUMENT, NERD], ids=lambda p: p.name)
def simulator(request: pytest.FixtureRequest) -> Iterator[UdpSimulator]:
    """One that takes many."""
    profile: Profile = request.param
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile) as running:
        yield running


def join_blocking(address: Endpoint, **options: Any) -> None:
    with BlockingSession.connect(address, **options) as session:
        assert session.agents()


def join_with_trio(address: Endpoint, **options: Any) -> None:
    async def join() -> None:
        async with await TrioSession.connect(address, **options) as session:
            assert await session.agents()

    trio.run(join)


BOTH = pytest.mark.parametrize("join", [join_blocking, join_with_trio])


@pytest.mark.parametrize("collecting", [0.12, 60.0], ids=["adopted", "answered"])
def test_a_process_that_is_killed_before_it_has_an_agent_locks_no_server(
    server: UdpSimulator | OneAtATime, collecting: float
) -> None:
    killed(server.address, collecting=collecting)
    join_blocking(server.address, limits=Limits(connect=5.0))
    assert leases() == []


@BOTH
def test_so_it_is_with_a_session_that_is_let_go_of(
    server: UdpSimulator | OneAtATime, join: Callable[..., None]
) -> None:
    BlockingSession.connect(server.address).disown()
    join(server.address, limits=Limits(connect=5.0))
    assert leases() == []


@BOTH
@pytest.mark.parametrize("profile", [DOCUMENT, NERD], ids=lambda p: p.name)
def test_whoever_is_interrupted_behind_the_answer_says_goodbye(
    join: Callable[..., None], profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arrival: Arrival) -> None:
        held(arrival)
        if arrival.machine.answered is not None:
            raise KeyboardInterrupt

    held = Arrival._hold_place
    with UdpSimulator(SyntheticWorld(2, 3), port=0, profile=profile, max_handlers=1) as server:
        with monkeypatch.context() as patched:
            patched.setattr(Arrival, "_hold_place", interrupted)
            with pytest.raises(KeyboardInterrupt):
                join(server.address)
        # Nobody says it once more for them.
        join(server.address, limits=Limits(connect=2.0), reclaim_stale=False)
        join(server.address)
    assert leases() == []


@BOTH
def test_a_session_that_only_looked_leaves_no_lease(
    simulator: UdpSimulator, join: Callable[..., None]
) -> None:
    join(simulator.address, reclaim_stale=False)
    assert leases() == []


def test_a_living_session_without_agents_keeps_its_place(simulator: UdpSimulator) -> None:
    with BlockingSession.connect(simulator.address) as living:
        assert len(leases()) == 1
        join_blocking(simulator.address)
        assert list(stale_leases(simulator.address)) == []
        assert living.agents()


def test_a_session_that_gave_its_agent_back_keeps_the_lease_of_its_place(simulator: UdpSimulator) -> None:
    session = BlockingSession.connect(simulator.address)
    session.register("agent")
    session.deregister("agent")
    session.disown()
    ((lease, file),) = stale_leases(simulator.address)
    assert lease.agents == {}
    file.abandon()
    join_blocking(simulator.address)
    assert leases() == []


def test_a_lease_without_agents_does_not_explain_why_an_agent_is_taken(simulator: UdpSimulator) -> None:
    BlockingSession.connect(simulator.address).disown()
    with BlockingSession.connect(simulator.address, reclaim_stale=False) as other:
        other.register("agent")
        with (
            BlockingSession.connect(simulator.address, reclaim_stale=False) as session,
            pytest.raises(AgentTaken, match="is controlled by another client"),
        ):
            session.register("agent")
    assert len(leases()) == 1


def test_a_place_whose_handler_is_silent_is_given_up_after_one_goodbye(simulator: UdpSimulator) -> None:
    session = BlockingSession.connect(simulator.address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        (file,) = leases()
        ours = f'"handler_port": {session.conversation.handler.port}'
        file.write_text(file.read_text().replace(ours, f'"handler_port": {silent.getsockname()[1]}'))
        session.disown()
        join_blocking(simulator.address, limits=Limits(close=0.4))
    assert leases() == []


def test_that_an_event_is_asked_for_stands_in_the_lease_before_it_is_asked(simulator: UdpSimulator) -> None:
    class Killed(BaseException):
        pass

    with BlockingSession.connect(simulator.address) as session:
        exchange = session.conversation.register_event("/Synthetic/Mark")
        session.machine.begin(exchange, time.monotonic())
        (file,) = leases()
        assert '"events": true' in file.read_text()
        session.machine.interrupt(Killed())
