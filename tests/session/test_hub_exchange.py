"""One request and its reply: within the limit whatever signals come, and however little the other side reads."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from ospbridge.hub.framing import encode
from ospbridge.hub.replies import Detached
from ospbridge.session.hub_exchange import HubExchange
from tests.ticking import ticking

pytestmark = pytest.mark.loopback
LONG = 20.0
REPLY = bytearray()
encode(Detached(), REPLY)


@pytest.fixture(params=[True, False], ids=["spin", "sleep"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[HubExchange, socket.socket]]:
    """An exchange, and the socket at its other end."""
    mine, other = socket.socketpair()
    mine.setblocking(False)
    exchange = HubExchange(mine, spin=request.param)
    try:
        yield exchange, other
    finally:
        exchange.close()
        other.close()


def test_a_reply_in_pieces_is_waited_for(pair: tuple[HubExchange, socket.socket]) -> None:
    exchange, other = pair
    other.send(REPLY[:3])
    timer = threading.Timer(0.05, other.send, (REPLY[3:],))
    timer.start()
    assert exchange.receive(LONG) == Detached()
    timer.join()


@pytest.mark.parametrize("limit", [0.0, 1e-9, 0.02])
def test_nothing_in_time_is_told(pair: tuple[HubExchange, socket.socket], limit: float) -> None:
    exchange, other = pair
    began = time.monotonic()
    with pytest.raises(TimeoutError, match="no reply within"):
        exchange.receive(limit)
    assert time.monotonic() - began >= limit
    other.send(REPLY)
    assert exchange.receive(LONG) == Detached()


def test_nothing_is_told_in_time_however_often_signals_come(pair: tuple[HubExchange, socket.socket]) -> None:
    exchange, _ = pair
    with ticking(0.01, longest=10.0), pytest.raises(TimeoutError):
        exchange.receive(0.1)


def test_who_does_not_read_is_given_up_and_who_reads_late_gets_all(
    pair: tuple[HubExchange, socket.socket],
) -> None:
    exchange, other = pair
    with pytest.raises(TimeoutError, match="does not read"):
        exchange.send(bytearray(4_000_000), 0.05)
    other.close()
    mine, late = socket.socketpair()
    mine.setblocking(False)
    got = bytearray()

    def read() -> None:
        time.sleep(0.05)
        while data := late.recv(1 << 20):
            got.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    exchange = HubExchange(mine, spin=False)
    exchange.send(bytearray(4_000_000), LONG)
    exchange.close()
    reading.join(LONG)
    late.close()
    assert len(got) == 4_000_000


def test_whoever_waits_is_woken_by_the_end(pair: tuple[HubExchange, socket.socket]) -> None:
    exchange, _ = pair
    timer = threading.Timer(0.05, exchange.hang_up, (socket.SHUT_RDWR,))
    timer.start()
    with pytest.raises(ConnectionResetError):
        exchange.receive(LONG)
    timer.join()
