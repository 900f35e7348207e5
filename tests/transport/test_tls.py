"""Connecting with TLS, where a name has several addresses."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.interface import Endpoint
from ospbridge.transport import tls
from ospbridge.transport.tls import TlsAddress, connect_tls
from tests.daemon.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


class Silent(socket.socket):
    """Nobody answers at any address: what it was given to wait is over then."""

    now = 0.0
    waited: list[float]

    def connect(self, _: Any) -> None:
        limit = self.gettimeout()
        assert limit is not None
        Silent.waited.append(limit)
        Silent.now += limit
        raise TimeoutError


def test_the_addresses_of_a_name_share_the_time_to_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{n}", 9)) for n in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    monkeypatch.setattr(socket, "socket", Silent)
    monkeypatch.setattr(tls, "monotonic", lambda: Silent.now)
    Silent.waited = []
    address = TlsAddress(Endpoint("trainer", 9), Authority(tmp_path).issue("client"))
    with pytest.raises(TimeoutError):
        connect_tls(address, 6.0)
    assert Silent.waited == pytest.approx([2.0, 2.0, 2.0])
