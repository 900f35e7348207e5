"""The hub's door: who is let in, and what garbage is told."""

from __future__ import annotations

import contextlib
import stat
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from ospbridge.hub.replies import Refusal
from ospbridge.hub.requests import VERSION, Attach, Hello, Status
from ospbridge.observe.runtime import default_hub
from ospbridge.transport.unix import connect_unix
from tests.daemon.hubs import Line
from tests.daemon.running import LocalDaemon, run_here, seat_of, until, values

if TYPE_CHECKING:
    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


def refusal(*said: Hello | Attach | bytes) -> Refusal:
    """What the first of these is answered that is refused."""
    with closing(Line(default_hub())) as line:
        for each in said:
            line.say_bytes(each if isinstance(each, bytes) else line.frame(each))
            answer = line.hear()
            if isinstance(answer, Refusal):
                return answer
    raise AssertionError("nothing was refused")


def test_garbage_is_answered_with_what_was_expected(document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon, closing(seat_of("agent1")) as seat:
        seat.reset(1)
        for garbage, words in (
            (b"GET / HTTP/1.1\r\n\r\n", "was announced"),
            (b"\x05\x00\x00\x00hello", "expected a request"),
            ((64 * 1024 * 1024 + 1).to_bytes(4, "little"), "the limit is"),
            (b"\x00\x00\x00\x00", "truncated"),
        ):
            assert words in refusal(garbage).message
            assert words in refusal(Hello(VERSION, "test"), garbage).message
            assert not seat.step(values(0.5)).truncated
        until(lambda: len(daemon.lines("a client was dismissed")) == 8)


def test_another_version_is_refused_with_both_numbers(document: UdpSimulator) -> None:
    with LocalDaemon(document.address):
        refused = refusal(Hello(99, "later"))
        assert "version 99" in refused.message
        assert str(VERSION) in refused.message.replace("99", "")
        assert "same version" in refused.hint
        assert "expected a hello" in refusal(Attach([])).message


def test_the_socket_is_for_owner_and_group_only(document: UdpSimulator) -> None:
    with LocalDaemon(document.address):
        assert stat.S_IMODE(default_hub().stat().st_mode) == 0o660


def test_a_second_daemon_on_the_same_hub_is_refused(document: UdpSimulator) -> None:
    with LocalDaemon(document.address, agents=("agent1",)) as first:
        done = run_here("connect", "--simulator", str(document.address))
        assert done.exit_code == 78
        assert f"another daemon listens at {default_hub()}" in done.stderr
        assert "--hub" in done.stderr
        assert first.status().ready


def test_a_flood_of_requests_holds_up_nobody_else(document: UdpSimulator) -> None:
    with LocalDaemon(document.address), connect_unix(default_hub()) as flood:
        flood.sendall(Line.frame(Hello(VERSION, "flood")))
        stopping = threading.Event()

        def pour() -> None:
            many = Line.frame(Status()) * 1000
            flood.settimeout(0.2)
            with contextlib.suppress(OSError):
                while not stopping.is_set():
                    flood.sendall(many)
                    while len(flood.recv(1 << 20)) == 1 << 20:
                        pass

        thread = threading.Thread(target=pour)
        thread.start()
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            assert not any(seat.step(values(0.5)).truncated for _ in range(20))
        stopping.set()
        thread.join(10)
