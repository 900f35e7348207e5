"""Streams that wait for so long, and no longer, whatever signals come: in one call, and by asking."""

from __future__ import annotations

import gc
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from ospbridge.transport.lingering import QUIET, linger
from ospbridge.transport.patient import LocalStream, PatientStream, TlsStream, wait_writable
from tests.ticking import ticking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.loopback
LONG = 20.0


@pytest.fixture(params=[LocalStream, TlsStream], ids=["kernel", "asking"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[PatientStream, socket.socket]]:
    """A stream, and the plain socket at its other end. What TLS adds to a socket is tested with the hub."""
    kind: Callable[[socket.socket], PatientStream] = request.param
    mine, other = socket.socketpair()
    stream = kind(mine)
    try:
        yield stream, other
    finally:
        stream.close()
        other.close()


def test_it_waits_for_what_comes_later(pair: tuple[PatientStream, socket.socket]) -> None:
    stream, other = pair
    timer = threading.Timer(0.05, other.send, (b"late",))
    timer.start()
    assert stream.receive(memoryview(bytearray(8)), LONG) == 4
    timer.join()


def test_nothing_in_time_is_told_for_any_time(pair: tuple[PatientStream, socket.socket]) -> None:
    stream, other = pair
    into = memoryview(bytearray(8))
    for seconds in (0.0, 0.02, 1e-9, 0.02):
        began = time.monotonic()
        with pytest.raises(BlockingIOError):
            stream.receive(into, seconds)
        assert time.monotonic() - began >= seconds
    other.send(b"x")
    assert stream.receive(into, LONG) == 1


def test_sending_never_waits(pair: tuple[PatientStream, socket.socket]) -> None:
    stream, other = pair
    sent = 0

    def pour() -> None:
        nonlocal sent
        while True:
            sent += stream.send(bytes(65_536))

    with pytest.raises(BlockingIOError):
        pour()
    wait_writable(stream, 0.01)
    while sent:
        sent -= len(other.recv(1 << 20))
    wait_writable(stream, LONG)
    assert stream.send(b"again") == 5


def test_nothing_is_told_in_time_however_often_signals_come(
    pair: tuple[PatientStream, socket.socket],
) -> None:
    stream, _ = pair
    with ticking(0.01, longest=10.0), pytest.raises(BlockingIOError):
        stream.receive(memoryview(bytearray(8)), 0.1)


def test_a_stream_that_is_closed_leaves_its_descriptor_to_others(
    pair: tuple[PatientStream, socket.socket],
) -> None:
    stream, _ = pair
    descriptor = stream.fileno()
    stream.close()
    again, other = socket.socketpair()
    assert descriptor in {again.fileno(), other.fileno()}
    del stream, pair
    gc.collect()
    other.send(b"x")
    assert again.recv(1) == b"x"
    again.close()
    other.close()


def talk(to: socket.socket) -> None:
    for _ in range(300):
        to.send(b"and")
        time.sleep(QUIET / 20)


def test_a_peer_that_never_stops_talking_is_left_when_the_time_is_over() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            linger(ours.fileno(), 0.5)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # nobody reads any more
            talk(theirs)
