"""What the main port shows of a simulator whose handler is gone."""

from __future__ import annotations

import socket
from time import monotonic
from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.interface import Endpoint
from ospbridge.osp.timing import RESTART_SETTLES
from ospbridge.session import absence
from ospbridge.session.absence import Absence
from tests.ipv6 import needs_ipv6

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.loopback


def settle(absence: Absence) -> bool:
    async def main() -> bool:
        return await absence.settle()

    return trio.run(main)


WAYS = pytest.mark.parametrize("ask", [Absence.settled, settle])


def bound(host: str = "127.0.0.1") -> tuple[socket.socket, Endpoint]:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    return sock, Endpoint(host, sock.getsockname()[1])


@WAYS
@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
def test_a_closed_main_port_shows_that_the_simulator_was_away(
    host: str, ask: Callable[[Absence], bool]
) -> None:
    sock, server = bound(host)
    sock.close()
    assert ask(Absence(server))


@WAYS
def test_a_simulator_that_came_back_since_was_away(ask: Callable[[Absence], bool]) -> None:
    sock, server = bound()
    sock.close()
    looked = Absence(server)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as returned:
        returned.bind((server.host, server.port))
        assert ask(looked)


@WAYS
def test_a_simulator_that_is_there_is_left_alone_until_it_may_be_joined(
    ask: Callable[[Absence], bool],
) -> None:
    sock, server = bound()
    with sock:
        begun = monotonic()
        assert not ask(Absence(server))
        assert monotonic() - begun >= RESTART_SETTLES * 0.99


@WAYS
def test_what_answers_is_there(ask: Callable[[Absence], bool]) -> None:
    sock, server = bound()
    with sock:
        looked = Absence(server)
        _, peer = sock.recvfrom(16)
        sock.sendto(b"\x01x", peer)
        begun = monotonic()
        assert not ask(looked)
        assert monotonic() - begun > RESTART_SETTLES / 2


@WAYS
def test_no_way_to_it_is_no_presence(ask: Callable[[Absence], bool]) -> None:
    assert ask(Absence(Endpoint("255.255.255.255", 9)))


@WAYS
def test_without_a_descriptor_left_it_is_waited_for_as_if_the_simulator_were_there(
    ask: Callable[[Absence], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> socket.socket:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(absence, "closed_port_probe", none_left)
    begun = monotonic()
    looked = Absence(Endpoint("127.0.0.1", 9))
    monkeypatch.undo()
    assert not ask(looked)
    assert monotonic() - begun >= RESTART_SETTLES * 0.99


def test_it_may_be_forgotten_twice() -> None:
    looked = Absence(Endpoint("127.0.0.1", 9))
    looked.close()
    looked.close()
