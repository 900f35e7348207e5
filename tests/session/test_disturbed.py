"""What routers and firewalls say of a datagram is a loss, and never the end of the program."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import numpy as np
import pytest

from ospbridge.errors import SessionLost
from ospbridge.osp.profile import DOCUMENT
from ospbridge.osp.timing import Limits
from ospbridge.session import lease
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from tests.session.drivers import Driver
from tests.session.servers import Instead

LIMITS = Limits(connect=10, query=10, step=10, reset=10)


class Disturbed(Instead):
    """A socket that now and then tells what the network said of an earlier datagram, instead of doing as asked.

    A request that is lost and whose repetition is lost too leaves a step in doubt: so many sends are let through.
    """

    def __init__(self, sock: socket.socket, number: int) -> None:
        super().__init__(sock)
        self._error = OSError(number, os.strerror(number))
        self._sent = 0
        self._received = 0
        self.told = 0

    def _tell(self, *, when: bool) -> None:
        if when:
            self.told += 1
            raise self._error

    def send(self, data: bytes, flags: int = 0) -> int:
        self._sent += 1
        self._tell(when=self._sent % 9 == 0)
        return self._socket.send(data, flags)

    def recv(self, size: int, flags: int = 0) -> bytes:
        self._received += 1
        self._tell(when=self._received % 7 == 0)
        return self._socket.recv(size, flags)


@pytest.fixture
def simulator() -> Iterator[UdpSimulator]:
    with UdpSimulator(SyntheticWorld(1, 1), port=0, profile=DOCUMENT) as running:
        yield running


@pytest.mark.loopback
@pytest.mark.parametrize("number", [errno.EHOSTUNREACH, errno.EPERM], ids=errno.errorcode.get)
def test_a_session_goes_on_whatever_the_network_says(
    either: Driver, simulator: UdpSimulator, number: int
) -> None:
    with either.having(simulator, "agent", limits=LIMITS) as session:
        disturbed = session.channel.sock = Disturbed(session.channel.sock, number)
        session.reset(1)
        for _ in range(6):
            assert session.step({"agent": np.zeros(1, np.float32)})["agent"].outputs.shape == (1,)
        assert disturbed.told


class Refusing(Instead):
    """A socket whose next send is answered by a firewall between, as if the handler's port were closed."""

    def send(self, data: bytes, flags: int = 0) -> int:
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


@pytest.mark.loopback
@pytest.mark.parametrize("far", [True, False])
def test_an_agent_whose_handler_only_seemed_to_be_gone_is_freed_where_another_host_has_it(
    either: Driver, simulator: UdpSimulator, monkeypatch: pytest.MonkeyPatch, *, far: bool
) -> None:
    if far:
        monkeypatch.setattr(lease, "is_loopback", lambda _: False)
    session = either.having(simulator, "agent", limits=LIMITS)
    session.channel.sock = Refusing(session.channel.sock)
    with pytest.raises(SessionLost, match="refused"):
        session.reset(1)
    session.close()
    with either.connect(simulator, limits=LIMITS) as successor:
        # On this host nobody else can have said it.
        assert successor.agents()[0].available is far
