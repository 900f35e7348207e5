"""The hub's door: who is let in, what garbage is told, and what becomes of a socket that is removed."""

from __future__ import annotations

import shutil
import stat
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from ospbridge.daemon.hub import server as hub_server
from ospbridge.hub.requests import VERSION, Attach, Hello, Status
from ospbridge.observe.runtime import default_hub
from ospbridge.session.hub_client import HubClient
from ospbridge.transport.unix import connect_unix
from tests.daemon.hubs import Line, play
from tests.daemon.running import WITHIN, LocalDaemon, at_once, run_here, seat_of, until, values

if TYPE_CHECKING:
    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_server, "LOOK_EVERY", 0.05)


def test_garbage_is_answered_with_what_was_expected(document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon, closing(seat_of("agent1")) as seat:
        seat.reset(1)
        for garbage, words in (
            (b"GET / HTTP/1.1\r\n\r\n", "was announced"),
            (b"\x05\x00\x00\x00hello", "expected a request"),
            ((64 * 1024 * 1024 + 1).to_bytes(4, "little"), "the limit is"),
            (b"\x00\x00\x00\x00", "truncated"),
        ):
            for line in (Line(), Line.greeted()):
                assert words in line.refusal(garbage).message
                line.close()
            assert not seat.step(values(0.5)).truncated
        until(lambda: len(daemon.lines("a client was dismissed")) == 8)


def test_another_version_is_refused_with_both_numbers(document: UdpSimulator) -> None:
    with LocalDaemon(document.address), closing(Line()) as later, closing(Line()) as rude:
        refused = later.refusal(Hello(99, "later"))
        assert "version 99" in refused.message
        assert str(VERSION) in refused.message.replace("99", "")
        assert "same version" in refused.hint
        assert "expected a hello" in rude.refusal(Attach([])).message


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
            with suppress(OSError):
                while not stopping.is_set():
                    flood.sendall(many)
                    while len(flood.recv(1 << 20)) == 1 << 20:
                        pass

        thread = threading.Thread(target=pour)
        thread.start()
        play("agent1", 20)
        stopping.set()
        thread.join(10)


# --- its socket is removed by hand, or with a whole runtime directory ------------------------------------------------


@pytest.mark.parametrize("what", ["the socket", "its directory"])
def test_who_is_attached_plays_on_and_others_come_in_again(what: str, document: UdpSimulator) -> None:
    with LocalDaemon(document.address) as daemon:
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
            if what == "the socket":
                default_hub().unlink()
            else:
                shutil.rmtree(default_hub().parent)
            other = HubClient.connect(wait=WITHIN).attach("agent2")
            assert not seat.step(values(0.5)).truncated
        at_once(lambda: other.reset(2))
        other.close()
        (line,) = daemon.lines("the hub's socket was gone, and is there again")
        assert line["hub"] == str(default_hub())
        assert daemon.end() == 0
    assert list(default_hub().parent.glob("hub*")) == []


def test_a_daemon_that_another_one_has_replaced_says_so_and_leaves_its_socket_alone(
    document: UdpSimulator,
) -> None:
    with LocalDaemon(document.address, agents=("agent1",)) as first:
        with first.stopped():
            for path in default_hub().parent.glob("hub*"):
                path.unlink()
            second = LocalDaemon(document.address, agents=("agent2",))
            second.__enter__()
        with closing(second):
            until(lambda: first.lines("the hub's socket is gone"))
            assert first.end() == 0
            (line,) = first.lines("the hub's socket is gone")
            assert f"another daemon listens at {default_hub()}" in line["reason"]
            assert [agent.name for agent in second.status().agents] == ["agent2"]
            assert second.end() == 0
