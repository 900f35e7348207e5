"""The hub's door: who is let in, and what garbage is told."""

from __future__ import annotations

import contextlib
import stat
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from ospbridge.errors import LocalProtocolError
from ospbridge.hub.decoding import VERSION, decode_reply
from ospbridge.hub.framing import Incoming, encode
from ospbridge.hub.replies import HubReply, Refusal
from ospbridge.hub.requests import Attach, Hello, HubRequest, Status
from ospbridge.session.hub_client import default_hub
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.unix import connect_unix
from tests.daemon.running import Daemon, run_program, seat_of, values

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.loopback


def talk(*requests: HubRequest | bytes) -> list[HubReply]:
    """What the daemon answers until it hangs up or falls silent."""
    replies: list[HubReply] = []
    with connect_unix(default_hub()) as sock:
        sock.settimeout(1.0)
        for request in requests:
            frame = bytearray(request) if isinstance(request, bytes) else bytearray()
            if not isinstance(request, bytes):
                encode(request, frame)
            sock.sendall(frame)
        incoming = Incoming()
        try:
            while count := sock.recv_into(incoming.space()):
                incoming.received(count)
                while (message := incoming.next_message()) is not None:
                    replies.append(decode_reply(message))
        except TimeoutError:
            pass
    return replies


@pytest.mark.parametrize(
    "request_bytes, words",
    [
        (b"GET / HTTP/1.1\r\n\r\n", "was announced"),
        (b"\x05\x00\x00\x00hello", "expected a request"),
        ((64 * 1024 * 1024 + 1).to_bytes(4, "little"), "the limit is"),
        (b"\x00\x00\x00\x00", "truncated"),
    ],
    ids=["http", "garbage", "oversize", "empty"],
)
def test_garbage_is_answered_with_what_was_expected(
    document: UdpSimulator, tmp_path: Path, request_bytes: bytes, words: str
) -> None:
    with Daemon(document.address, directory=tmp_path) as daemon:
        for before in ((), (Hello(VERSION, "test"),)):
            *_, last = talk(*before, request_bytes)
            assert isinstance(last, Refusal)
            assert words in last.message
        seat = seat_of("agent1")
        seat.reset(1)
        seat.close()
        assert len(daemon.lines("a client was dismissed")) == 2


def test_another_version_is_refused_with_both_numbers(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, directory=tmp_path):
        (refused,) = talk(Hello(99, "later"))
        assert isinstance(refused, Refusal)
        assert "version 99" in refused.message
        assert "same version" in refused.hint
        (refused,) = talk(Attach([]))
        assert isinstance(refused, Refusal)
        assert "expected a hello" in refused.message


def test_the_socket_is_for_owner_and_group_only(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, directory=tmp_path):
        assert stat.S_IMODE(default_hub().stat().st_mode) == 0o660


def test_a_second_daemon_on_the_same_hub_is_refused(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, "--agent", "agent1", directory=tmp_path) as first:
        done = run_program("connect", "--simulator", str(document.address))
        assert done.returncode == 78
        assert f"another daemon listens at {default_hub()}" in done.stderr
        assert "--hub" in done.stderr
        assert first.status().ready


def test_the_socket_of_a_dead_daemon_is_replaced(document: UdpSimulator, tmp_path: Path) -> None:
    with Daemon(document.address, directory=tmp_path) as first:
        first.process.kill()
        first.process.wait(10)
    assert default_hub().exists()
    with Daemon(document.address, directory=tmp_path) as second:
        assert second.end() == 0
    assert list(default_hub().parent.glob("hub*")) == []


def test_wrong_inputs_of_one_environment_cost_no_other_the_step(
    document: UdpSimulator, tmp_path: Path
) -> None:
    with Daemon(document.address, directory=tmp_path):
        seat = seat_of("agent1")
        seat.reset(1)
        for wrong in (np.zeros(3, np.float32), np.array([0, np.nan], np.float32), "text"):
            with pytest.raises(LocalProtocolError):
                seat.step(wrong)
        assert not seat.step(values(0.5)).truncated
        seat.close()


def test_a_flood_of_requests_holds_up_nobody_else(document: UdpSimulator, tmp_path: Path) -> None:
    frame = bytearray()
    encode(Hello(VERSION, "flood"), frame)
    ask = bytearray()
    encode(Status(), ask)
    with Daemon(document.address, directory=tmp_path), connect_unix(default_hub()) as flood:
        flood.sendall(frame)
        stopping = threading.Event()

        def pour() -> None:
            many = bytes(ask) * 1000
            flood.settimeout(0.2)
            with contextlib.suppress(OSError):
                while not stopping.is_set():
                    flood.sendall(many)
                    while len(flood.recv(1 << 20)) == 1 << 20:
                        pass

        thread = threading.Thread(target=pour)
        thread.start()
        seat = seat_of("agent1")
        seat.reset(1)
        for _ in range(20):
            assert not seat.step(values(0.5)).truncated
        seat.close()
        stopping.set()
        thread.join(10)
