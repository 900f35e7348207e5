"""What a host says that cannot send to a simulator: that may pass, or be the address's own fault."""

from __future__ import annotations

import errno
import os
import socket

import pytest

from ospbridge.errors import ConfigurationError, SimulatorNotFound
from ospbridge.interface import Endpoint
from ospbridge.transport.udp import closed_port_probe


class Unconnected(socket.socket):
    """Of a host without a way to anybody."""

    number = 0

    def connect(self, _: object) -> None:
        raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize(
    "number", [errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL]
)
def test_a_network_that_is_down_is_no_mistake_and_may_be_waited_for(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Unconnected, "number", number)
    monkeypatch.setattr(socket, "socket", Unconnected)
    with pytest.raises(SimulatorNotFound, match=r"cannot send to 192\.0\.2\.1:45454: ") as told:
        closed_port_probe(Endpoint("192.0.2.1", 45454))
    assert "network" in told.value.hint


def test_an_address_of_no_host_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot send to 255\.255\.255\.255:9"):
        closed_port_probe(Endpoint("255.255.255.255", 9))
