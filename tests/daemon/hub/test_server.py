"""The hub's door: who is let in, how many and how much they may say, and what becomes of a socket that is removed."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import threading
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from ospbridge.daemon.hub import connection as hub_connection
from ospbridge.daemon.hub import server as hub_server
from ospbridge.daemon.hub.answers import MOST_PATTERNS
from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import AgentTaken, HubError, LocalProtocolError
from ospbridge.hub.requests import VERSION, Attach, Hello, Status
from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import default_hub
from ospbridge.session import hub_client
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.tls import TlsAddress
from ospbridge.transport.unix import connect_unix
from tests.daemon.certificates import Authority
from tests.daemon.hubs import Line, play
from tests.daemon.running import WITHIN, LocalDaemon, at_once, free_port, run_here, seat_of, until, values

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
                # The daemon may listen there again before the directory is empty.
                shutil.rmtree(default_hub().parent, ignore_errors=True)
            other = AgentHandle.attach(HubClient.connect(wait=WITHIN), "agent2")
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


# --- limits -----------------------------------------------------------------------------------------------------------


def let_in() -> bool:
    with suppress(HubError):
        HubClient.connect().close()
        return True
    return False


def test_one_more_than_the_daemon_takes_is_told_so_and_has_its_turn_later(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "MOST_CLIENTS", 2)
    with LocalDaemon(document.address):
        until(let_in)
        first, second = HubClient.connect(), HubClient.connect()
        with pytest.raises(HubError, match="serves 2 connections, which is all it takes"):
            HubClient.connect()
        first.close()
        until(let_in)
        second.close()


def test_environments_of_a_container_beside_the_daemons_share_an_agent_with_their_own_process_alone(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose processes the kernel does not name to the daemon."""
    monkeypatch.setattr(hub_connection, "peer_pid", lambda _: 0)
    with LocalDaemon(document.address):
        first, twin = HubClient.connect(), HubClient.connect()
        monkeypatch.setattr(hub_client, "_process", lambda _: "another")
        other = HubClient.connect()
        first.attach_all(["agent1"])
        twin.attach_all(["agent1"])
        with pytest.raises(AgentTaken):
            other.attach_all(["agent1"])
        first.close()
        twin.close()


def test_a_client_whose_socket_has_a_name_is_no_other_hosts(document: UdpSimulator, tmp_path: Path) -> None:
    """It could say of itself whatever it likes."""
    with LocalDaemon(document.address) as daemon, socket.socket(socket.AF_UNIX) as client:
        client.bind(f"\0{tmp_path}")
        client.connect(str(default_hub()))
        for request in (Hello(VERSION, "a client", pid=1), Attach(["agent1"])):
            client.sendall(Line.frame(request))
            client.recv(65536)
        (driver,) = {agent.driver for agent in daemon.status().agents if agent.driver}
    assert driver == f"a client (pid {os.getpid()})"


def test_a_host_that_shows_no_certificates_again_and_again_keeps_no_other_host_out(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "MOST_HANDSHAKES", 2)
    authority, port = Authority(tmp_path), free_port(socket.SOCK_STREAM)
    listen = TlsAddress(Endpoint("127.0.0.1", port), authority.issue("daemon"))
    with LocalDaemon(document.address, listen=listen), ExitStack() as stack:
        silent = [
            stack.enter_context(
                socket.create_connection(("127.0.0.1", port), 5, source_address=("127.0.0.2", 0))
            )
            for _ in range(2)
        ]
        HubClient.connect(f"tls://127.0.0.1:{port}", tls=authority.issue("environment")).close()
        # Who waits longest has given way, and nobody else.
        assert silent[0].recv(1) == b""
        silent[1].setblocking(False)
        with pytest.raises(BlockingIOError):
            silent[1].recv(1)


def test_a_connection_that_the_host_denies_does_not_end_the_hub(
    document: UdpSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a firewall or a security module does."""
    monkeypatch.setattr(hub_server, "TRY_AGAIN", 0.01)
    errors = [errno.EPERM, errno.EACCES, errno.EPROTO, errno.ENETDOWN, errno.EMFILE]
    accept = socket.socket.accept

    def accepted(listener: socket.socket) -> Any:
        if errors:
            number = errors.pop()
            raise OSError(number, os.strerror(number))
        return accept(listener)

    with LocalDaemon(document.address) as daemon:
        monkeypatch.setattr(socket.socket, "accept", accepted)
        assert daemon.status().clients == 1
        (told,) = daemon.lines("cannot accept an environment")
    assert told["reason"] == os.strerror(errno.EMFILE)


def test_a_request_that_names_too_many_agents_is_refused(document: UdpSimulator) -> None:
    with (
        LocalDaemon(document.address),
        closing(HubClient.connect()) as client,
        pytest.raises(LocalProtocolError, match="the limit is"),
    ):
        client.attach_all(["agent1"] * (MOST_PATTERNS + 1))
