"""Leases as files that several programs look at, and that cannot be had, or whose agents cannot be freed to the end."""

from __future__ import annotations

import fcntl
import gc
import json
import select
import shutil
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from ospbridge.interface import Endpoint
from ospbridge.osp.messages import (
    DeregisterFromAgent,
    DeregisterFromAgentAck,
    End,
    EndAck,
    decode_request,
)
from ospbridge.osp.timing import Limits
from ospbridge.session import connect
from ospbridge.session.channel import Goodbye, say_goodbyes
from ospbridge.session.connect import reclaim
from ospbridge.session.lease import SUFFIX, Lease, LeaseFile, stale_leases
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver
from tests.session.servers import bound, closed_port, lease_of, left_behind

SERVER = Endpoint("127.0.0.1", 45454)
LEASE = lease_of(SERVER, local_port=9)


def descriptors() -> set[str]:
    """Those that are open, without what tests before have left to Python to find."""
    gc.collect()
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_another_that_looks_while_a_lease_is_made_neither_takes_nor_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that start together write leases and look for those of the dead at once."""
    found: list[Lease] = []

    def looked_at_first(descriptor: int, operation: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(fcntl, "flock", flock)
            for other in stale_leases(SERVER, tmp_path):
                other.abandon()
                found.append(other.lease)
        flock(descriptor, operation)

    flock = fcntl.flock
    ours = LeaseFile(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", looked_at_first)
        ours.write(lease_of(SERVER))
    assert not found
    assert not list(stale_leases(SERVER, tmp_path))
    assert ours.stands
    ours.abandon()
    assert [other.lease.agents for other in stale_leases(SERVER, tmp_path)] == [{"agent": 1}]


@pytest.mark.parametrize("later", ["", ', "tries": 2', ', "tries": 2, "owed": 1, "marked": true'])
def test_a_lease_of_an_earlier_version_is_read(tmp_path: Path, later: str) -> None:
    (tmp_path / "40000-50000.lease").write_text(
        '{"server": "127.0.0.1", "server_port": 45454, "local_host": "127.0.0.1", "local_port": 40000, '
        '"handler_port": 50000, "profile": "nerd", "agents": {"cart": 3}, "events": true, "pid": 7'
        + later
        + "}  "
    )
    (file,) = stale_leases(SERVER, tmp_path)
    assert (file.lease.agents, file.lease.events, file.lease.tries) == ({"cart": 3}, True, 2 if later else 0)
    assert (file.lease.owed, file.lease.marked) == ((1, True) if "owed" in later else (0, False))
    file.abandon()


def test_what_is_no_lease_is_removed_and_one_of_another_server_left_alone(tmp_path: Path) -> None:
    strange = [
        b"",
        b"{",
        b"[]",
        b'{"server": "127.0.0.1"}',
        *(
            json.dumps(msgspec.structs.asdict(LEASE) | wrong).encode()
            for wrong in (
                {"handler_port": 65536},
                {"local_port": 0},
                {"agents": {"agent": "one"}},
                {"tries": "one"},
                {"owed": None},
            )
        ),
    ]
    for number, content in enumerate(strange):
        (tmp_path / f"strange{number}{SUFFIX}").write_bytes(content)
    left_behind(Endpoint(SERVER.host, SERVER.port + 1), tmp_path)
    before = descriptors()
    assert list(stale_leases(SERVER, tmp_path)) == []
    assert descriptors() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_lease_whose_port_somebody_else_has_just_now_is_kept(tmp_path: Path) -> None:
    with bound() as other:
        left_behind(SERVER, tmp_path, local_port=other.getsockname()[1])
        assert reclaim(SERVER, tmp_path, Limits()) == []
        (file,) = stale_leases(SERVER, tmp_path)
        assert file.lease.tries == 1
        file.remove()


@pytest.mark.loopback
def test_whoever_is_interrupted_while_it_frees_agents_leaves_them_to_the_next(
    either: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(goodbyes: list[Goodbye]) -> None:
        monkeypatch.setattr(connect, "say_goodbyes", say_goodbyes)
        raise KeyboardInterrupt

    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        # The guardian of this process is there from the first session on.
        either.connect(simulator, leases=tmp_path).close()
    before = descriptors()
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, bound() as handler:
        left_behind(simulator.address, tmp_path, handler_port=handler.getsockname()[1])
        monkeypatch.setattr(connect, "say_goodbyes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            either.connect(simulator, leases=tmp_path).close()
        (file,) = stale_leases(simulator.address, tmp_path)
        assert file.lease.agents == {"agent": 1}
        file.remove()
    assert descriptors() == before


def answered_together(handlers: list[socket.socket]) -> None:
    """Old handlers of dead clients, of which none answers before all have heard a goodbye."""
    waiting: dict[socket.socket, bytes] = {}
    ended = 0
    while ended < len(handlers):
        for sock in select.select(handlers, [], [], 30)[0]:
            data, source = sock.recvfrom(100)
            sock.connect(source)
            if isinstance(decode_request(data), End):
                sock.send(EndAck().encode())
                ended += 1
            elif isinstance(decode_request(data), DeregisterFromAgent):
                waiting[sock] = DeregisterFromAgentAck(1, 1).encode()
        if len(waiting) == len(handlers):
            for sock, answer in waiting.items():
                sock.send(answer)
            waiting.clear()


@pytest.mark.loopback
def test_several_dead_sessions_take_the_time_of_one(either: Driver, tmp_path: Path) -> None:
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator, ExitStack() as stack:
        handlers = [stack.enter_context(bound()) for _ in range(5)]
        for handler in handlers:
            left_behind(simulator.address, tmp_path, handler_port=handler.getsockname()[1])
        answering = threading.Thread(target=answered_together, args=(handlers,))
        answering.start()
        either.connect(simulator, leases=tmp_path).close()
        answering.join(30)
        assert not list(tmp_path.iterdir())


@pytest.mark.loopback
def test_more_dead_sessions_than_are_dealt_with_at_once_are_all_dealt_with(
    either: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "AT_ONCE", 2)
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        for _ in range(5):
            # Whose handler is gone.
            left_behind(simulator.address, tmp_path, handler_port=closed_port())
        either.connect(simulator, leases=tmp_path).close()
        assert not list(tmp_path.iterdir())


@pytest.mark.loopback
@pytest.mark.parametrize("asking", ["a reset", "a look at the agents"])
def test_a_lease_that_was_removed_with_its_directory_is_made_again_and_frees_the_agents(
    asking: str, tmp_path: Path
) -> None:
    """As where a user logs out while a program of theirs goes on: the runtime directory is removed."""
    leases = tmp_path / "runtime" / "leases"
    with UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator:
        session = Driver().having(simulator, "agent", leases=leases)
        (before,) = leases.iterdir()
        opened = len(descriptors())
        shutil.rmtree(leases.parent)
        if asking == "a reset":
            session.reset(1)
        else:
            session.agents()
        assert list(leases.iterdir()) == [before]
        assert not list(stale_leases(simulator.address, leases))
        assert len(descriptors()) == opened
        # As when it is killed.
        session._drop()
        with Driver().connect(simulator, leases=leases) as next_one:
            assert all(entry.available for entry in next_one.agents())


@pytest.mark.loopback
def test_who_starts_while_another_lets_go_finds_its_port_free_and_frees_its_agents(
    either: Driver, simulator: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the lease is found worthless, and the agents stay taken."""
    session = either.having(simulator, "agent1", leases=tmp_path)
    file = session.core.lease
    abandon = file.abandon

    def abandoned() -> None:
        abandon()
        Driver().connect(simulator, leases=tmp_path).close()

    monkeypatch.setattr(file, "abandon", abandoned)
    session._drop()
    assert not list(tmp_path.iterdir())
    assert not simulator.machine.controlled
