"""Goodbyes: to handlers of INITs that nobody means any more, and the pause that a real server needs behind them."""

from __future__ import annotations

import socket
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.diagnosis.greeting import Server, answer_to, join
from ospbridge.interface import Endpoint
from ospbridge.osp.codes import Code
from ospbridge.osp.messages import Init
from ospbridge.osp.profile import DOCUMENT, NERD
from ospbridge.osp.server import ServerMachine
from ospbridge.osp.timing import Limits
from ospbridge.session.rebuild import PortProbe
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.ipv6 import needs_ipv6
from tests.session.drivers import Driver
from tests.session.servers import SETTLES, OneAtATime, bound, busy_for_a_while, content, leases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ospbridge.osp.profile import Profile

pytestmark = pytest.mark.loopback
BLOCKING = Driver()
PATIENT = Limits(connect=20.0)
"""Who is locked out is so for ever: no machine is too busy for this."""

# --- INITs that nobody means any more -------------------------------------------------------------------------------


@pytest.fixture
def server(profile: Profile) -> Iterator[OneAtATime]:
    """It answers at once, or when another client has left."""
    with OneAtATime(SyntheticWorld(2, 3), profile) as running:
        yield running


def leave(driver: Driver, server: OneAtATime) -> None:
    driver.connect(server, limits=PATIENT).close()


def restart(driver: Driver, server: OneAtATime) -> None:
    driver.connect(server, limits=PATIENT).restart_communication()


def probe(_: Driver, server: OneAtATime) -> None:
    join(Server(server.address), None, timeout=20.0).leave()


@pytest.mark.parametrize("leaves", [leave, restart])
def test_whoever_waited_behind_another_client_and_leaves_locks_nobody_out(
    either: Driver, server: OneAtATime, leaves: Callable[[Driver, OneAtATime], None]
) -> None:
    leaving = busy_for_a_while(server)
    leaves(either, server)
    leaving.join(30)
    BLOCKING.connect(server, limits=PATIENT, reclaim_stale=False).close()


def test_a_probe_locks_nobody_out_either() -> None:
    with OneAtATime(SyntheticWorld(2, 3), DOCUMENT) as server:
        leaving = busy_for_a_while(server)
        probe(BLOCKING, server)
        leaving.join(30)
        place = Server(server.address)
        line = join(place, None, timeout=20.0)
        # Nor do INITs that were only tried.
        init = Init(form=line.profile.init_form).encode(end=line.profile.end_marker)
        assert answer_to(place, init, line) is None
        line.leave()
        BLOCKING.connect(server, limits=PATIENT, reclaim_stale=False).close()


def test_so_it_is_where_it_died_and_its_successor_leaves_for_it(either: Driver, server: OneAtATime) -> None:
    leaving = busy_for_a_while(server)
    BLOCKING.connect(server, limits=PATIENT).disown()
    leaving.join(30)
    (file,) = leases()
    assert content(file)["owed"] > 0
    leave(either, server)
    BLOCKING.connect(server, limits=PATIENT, reclaim_stale=False).close()


def test_who_was_answered_at_once_owes_nothing_and_its_lease_is_one_that_earlier_versions_read() -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, BLOCKING.connect(simulator):
        (file,) = leases()
        assert "owed" not in content(file)


# --- half a second --------------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("profile", [NERD], ids=["nerd"])
@pytest.mark.parametrize("whose", ["of a dead session", "of another session of this process"])
def test_a_restart_waits_behind_a_goodbye(
    either: Driver, simulator: UdpSimulator, heard: dict[int, float], whose: str
) -> None:
    before = BLOCKING.connect(simulator)
    if whose == "of a dead session":
        before.disown()
    else:
        before.close()
    with either.connect(simulator) as session:
        session.restart_communication()
    assert heard[Code.RESET_COMMUNICATION] - heard[Code.END_COMMUNICATION] > SETTLES * 0.9


@pytest.mark.parametrize("profile", [NERD], ids=["nerd"])
def test_nobody_joins_right_behind_a_restart_of_this_process(
    either: Driver, simulator: UdpSimulator, heard: dict[int, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    greeted: list[float] = []
    receive = ServerMachine.receive_main

    def noted(machine: ServerMachine, data: bytes, peer: Any, now: float) -> None:
        greeted.append(monotonic())
        receive(machine, data, peer, now)

    with either.connect(simulator) as session:
        session.restart_communication()
    monkeypatch.setattr(ServerMachine, "receive_main", noted)
    either.connect(simulator).close()
    assert greeted[0] - heard[Code.RESET_COMMUNICATION] > SETTLES * 0.9


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_simulator_that_was_away_may_be_joined_at_once_and_one_that_is_there_after_a_while(
    host: str,
) -> None:
    with bound(host) as sock:
        server = Endpoint(host, sock.getsockname()[1])
        begun = monotonic()
        assert not PortProbe(server).was_away()
        assert monotonic() - begun >= SETTLES * 0.99
    looked = PortProbe(server)
    with socket.socket(sock.family, socket.SOCK_DGRAM) as returned:
        returned.bind((server.host, server.port))
        assert looked.was_away(), "it came back since"
    assert PortProbe(Endpoint("255.255.255.255", 9)).was_away(), "no way to it is no presence"
