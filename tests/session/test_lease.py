"""Leases that cannot be had, or whose agents cannot be freed to the end: no descriptor and no lock stays behind."""

from __future__ import annotations

import gc
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import trio

from ospbridge.interface import Endpoint
from ospbridge.osp.timing import Limits
from ospbridge.session import reclaim
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import Lease, LeaseFile, stale_leases
from ospbridge.session.reclaim import in_place_of
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    from collections.abc import Callable


SERVER = Endpoint("127.0.0.1", 45454)


def lease(server: Endpoint = SERVER, *, local_port: int = 0, handler_port: int = 9) -> Lease:
    return Lease(
        server=server.host,
        server_port=server.port,
        local_host="127.0.0.1",
        local_port=local_port or free_port(),
        handler_port=handler_port,
        profile="document",
        agents={"agent": 1},
        events=False,
        pid=1,
    )


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def descriptors() -> set[str]:
    """Those that are open, without what tests before have left to Python to find."""
    gc.collect()
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def test_a_lease_that_somebody_else_holds_costs_no_descriptor(tmp_path: Path) -> None:
    wanted = lease()
    first = LeaseFile(tmp_path)
    first.write(wanted)
    before = descriptors()
    second = LeaseFile(tmp_path)
    for _ in range(3):
        second.write(wanted)
    assert descriptors() == before
    first.abandon()
    second.write(wanted)
    second.remove()
    assert not list(tmp_path.iterdir())


def test_a_dead_clients_place_that_cannot_be_connected_costs_no_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[socket.socket] = []

    class Unconnectable(socket.socket):
        def connect(self, _: Any, /) -> NoReturn:
            raise OSError("no way there")

    def open_udp(family: socket.AddressFamily, **_: Any) -> socket.socket:
        made.append(Unconnectable(family, socket.SOCK_DGRAM))
        return made[0]

    monkeypatch.setattr(reclaim, "open_udp", open_udp)
    assert in_place_of(lease(), Limits()) is None
    assert made[0].fileno() == -1


def connect_blocking(address: Endpoint, leases: Path) -> None:
    BlockingSession.connect(address, leases=leases).close()


def connect_trio(address: Endpoint, leases: Path) -> None:
    async def connect() -> None:
        await (await TrioSession.connect(address, leases=leases)).aclose()

    trio.run(connect)


@pytest.mark.loopback
@pytest.mark.parametrize("connect", [connect_blocking, connect_trio])
def test_whoever_is_interrupted_while_it_frees_agents_leaves_them_to_the_next(
    connect: Callable[[Endpoint, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    before = descriptors()
    with (
        UdpSimulator(SyntheticWorld(2, 3), port=0) as simulator,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handler,
    ):
        handler.bind(("127.0.0.1", 0))
        dead = LeaseFile(tmp_path)
        dead.write(lease(simulator.address, handler_port=handler.getsockname()[1]))
        dead.abandon()
        monkeypatch.setattr(reclaim.Successor, "goodbye", interrupted)
        with pytest.raises(KeyboardInterrupt):
            connect(simulator.address, tmp_path)
        ((found, file),) = stale_leases(simulator.address, tmp_path)
        assert found.agents == {"agent": 1}
        file.remove()
    assert descriptors() == before
