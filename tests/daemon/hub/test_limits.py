"""How many may come to the hub, and how much they may say."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack, closing, suppress
from typing import TYPE_CHECKING, Any

import pytest

from ospbridge.daemon.hub import connection as hub_connection
from ospbridge.daemon.hub import server as hub_server
from ospbridge.daemon.hub.answers import MOST_PATTERNS
from ospbridge.errors import AgentTaken, HubError, LocalProtocolError
from ospbridge.hub.requests import VERSION, Attach, Hello
from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import default_hub
from ospbridge.session import hub_client
from ospbridge.session.hub_client import HubClient
from ospbridge.transport.tls import TlsAddress
from tests.daemon.certificates import Authority
from tests.daemon.hubs import Line
from tests.daemon.running import LocalDaemon, free_port, until

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = pytest.mark.loopback


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
        first.attach("agent1")
        twin.attach("agent1")
        with pytest.raises(AgentTaken):
            other.attach("agent1")
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
