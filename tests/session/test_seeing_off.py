"""A server that reads its main port again when a client has left finds INITs there that nobody means any more."""

from __future__ import annotations

import errno
import json
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.diagnosis.greeting import Server, answer_to, join
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.client.surplus import SurplusMachine
from ospbridge.osp.messages import Init
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.timing import Limits
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.arena import ArenaWorld
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.udp import open_beside
from tests.session.one_at_a_time import OneAtATime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.interface import Endpoint
    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback
LONG = 1.3
"""Seconds for which INIT is sent again and again."""
PATIENT = Limits(connect=15.0)
"""Who is locked out is so for ever: no machine is too busy for this."""


@pytest.fixture(params=[DOCUMENT, NERD], ids=lambda p: p.name)
def server(request: pytest.FixtureRequest) -> Iterator[OneAtATime]:
    profile: Profile = request.param
    with OneAtATime(SyntheticWorld(2, 3), profile) as running:
        yield running


def leave_blocking(address: Endpoint) -> None:
    BlockingSession.connect(address, limits=Limits(connect=8.0)).close()


def leave_with_trio(address: Endpoint) -> None:
    async def leave() -> None:
        await (await TrioSession.connect(address, limits=Limits(connect=8.0))).aclose()

    trio.run(leave)


def restart_blocking(address: Endpoint) -> None:
    BlockingSession.connect(address, limits=Limits(connect=8.0)).restart_communication()


def restart_with_trio(address: Endpoint) -> None:
    async def restart() -> None:
        await (await TrioSession.connect(address, limits=Limits(connect=8.0))).restart_communication()

    trio.run(restart)


def probe(address: Endpoint) -> None:
    join(Server(socket.AF_INET, address), None, timeout=8.0).leave()


BOTH = pytest.mark.parametrize("leave", [leave_blocking, leave_with_trio])


def behind_another(server: OneAtATime) -> threading.Timer:
    """Somebody else is there for a while."""
    first = BlockingSession.connect(server.address)
    leaving = threading.Timer(LONG, first.close)
    leaving.start()
    return leaving


@pytest.mark.parametrize(
    "leave", [leave_blocking, leave_with_trio, restart_blocking, restart_with_trio, probe]
)
def test_whoever_waited_behind_another_client_and_leaves_locks_nobody_out(
    server: OneAtATime, leave: Callable[[Endpoint], None]
) -> None:
    leaving = behind_another(server)
    leave(server.address)
    leaving.join(10)
    BlockingSession.connect(server.address, limits=PATIENT, reclaim_stale=False).close()


def test_inits_that_were_only_tried_lock_nobody_out_either(server: OneAtATime) -> None:
    place = Server(socket.AF_INET, server.address)
    line = join(place, None, timeout=2.0)
    init = Init(form=line.profile.init_form).encode(end=line.profile.end_marker)
    assert answer_to(place, init, line) is None
    line.leave()
    BlockingSession.connect(server.address, limits=PATIENT, reclaim_stale=False).close()


@BOTH
def test_so_it_is_where_it_died_and_its_successor_leaves_for_it(
    server: OneAtATime, leave: Callable[[Endpoint], None]
) -> None:
    leaving = behind_another(server)
    BlockingSession.connect(server.address, limits=Limits(connect=8.0)).disown()
    leaving.join(10)
    (file,) = (runtime_directory() / "leases").iterdir()
    assert json.loads(file.read_text())["owed"] > 0
    leave(server.address)
    BlockingSession.connect(server.address, limits=PATIENT, reclaim_stale=False).close()


def test_who_was_answered_at_once_leaves_at_once_and_its_lease_is_one_that_earlier_versions_read() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        session = BlockingSession.connect(simulator.address)
        (file,) = (runtime_directory() / "leases").iterdir()
        assert "owed" not in json.loads(file.read_text())
        begun = time.monotonic()
        session.close()
        assert time.monotonic() - begun < 0.2


def test_a_second_socket_at_a_port_hears_everybody_but_the_first_ones_peer() -> None:
    def bound() -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        return sock

    with bound() as peer, bound() as other, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
        first.connect(peer.getsockname())
        first.settimeout(5)
        second = open_beside(first)
        assert second is not None
        with second, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as third:
            second.settimeout(5)
            peer.sendto(b"peer", first.getsockname())
            other.sendto(b"other", first.getsockname())
            assert first.recv(100) == b"peer"
            assert second.recvfrom(100) == (b"other", other.getsockname())
            # Nobody else may sit down there.
            third.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                third.bind(first.getsockname())


def test_where_no_descriptor_is_left_nobody_else_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
        first.bind(("127.0.0.1", 0))
        monkeypatch.setattr(socket, "socket", none_left)
        assert open_beside(first) is None


def test_those_that_dead_sessions_are_owed_are_looked_for_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a silence, and of many of them one after the other there would be no end."""
    dead, most = 3, 0
    under_way: set[SurplusMachine] = set()
    begin, handle_timer = SurplusMachine.begin, SurplusMachine.handle_timer

    def begun(machine: SurplusMachine, now: float, give_up: float) -> None:
        nonlocal most
        under_way.add(machine)
        most = max(most, len(under_way))
        begin(machine, now, give_up)

    def timed(machine: SurplusMachine, now: float) -> None:
        handle_timer(machine, now)
        if machine.finished:
            under_way.discard(machine)

    with UdpSimulator(ArenaWorld(dead), port=0) as simulator:
        for number in range(dead):
            session = BlockingSession.connect(simulator.address, reclaim_stale=False)
            session.register(session.agents()[number].name)
            session.disown()
        for file in (runtime_directory() / "leases").iterdir():
            file.write_text(json.dumps(json.loads(file.read_text()) | {"owed": 1}))
        monkeypatch.setattr(SurplusMachine, "begin", begun)
        monkeypatch.setattr(SurplusMachine, "handle_timer", timed)
        with BlockingSession.connect(simulator.address) as session:
            assert len(session.freed) == dead
            assert all(entry.available for entry in session.agents())
    assert most == dead
    assert not under_way
