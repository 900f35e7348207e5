"""How many may come to the hub, and how much they may say."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.hub import connection as hub_connection
from ospbridge.daemon.hub import server as hub_server
from ospbridge.daemon.hub.admission import TlsListener
from ospbridge.daemon.hub.answers import MOST_PATTERNS
from ospbridge.daemon.hub.server import HubServer
from ospbridge.errors import AgentTaken, HubError, LocalProtocolError
from ospbridge.hub.framing import encode
from ospbridge.hub.requests import VERSION, Attach, Hello
from ospbridge.interface import Endpoint
from ospbridge.session import hub_client
from ospbridge.session.hub_client import HubClient
from ospbridge.transport.tls import TlsAddress
from tests.daemon.certificates import Authority
from tests.daemon.hubs import serving

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


async def connected(path: Path) -> HubClient:
    return await trio.to_thread.run_sync(partial(HubClient.connect, f"unix:{path}"))


async def test_one_more_than_the_daemon_takes_is_told_so_and_has_its_turn_later(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "MOST_CLIENTS", 2)
    path = tmp_path / "hub"
    async with serving(document, path):
        first, second = await connected(path), await connected(path)
        with pytest.raises(HubError, match="serves 2 connections, which is all it takes"):
            await connected(path)
        first.close()
        while True:
            await trio.sleep(0.01)
            try:
                (await connected(path)).close()
                break
            except HubError:
                continue
        second.close()


async def test_environments_of_a_container_beside_the_daemons_share_an_agent_with_their_own_process_alone(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose processes the kernel does not name to the daemon."""
    monkeypatch.setattr(hub_connection, "peer_pid", lambda _: 0)
    path = tmp_path / "hub"
    async with serving(document, path):
        first, twin = await connected(path), await connected(path)
        monkeypatch.setattr(hub_client, "_process", lambda _: "another")
        other = await connected(path)
        await trio.to_thread.run_sync(first.attach, "agent1")
        await trio.to_thread.run_sync(twin.attach, "agent1")
        with pytest.raises(AgentTaken):
            await trio.to_thread.run_sync(other.attach, "agent1")
        first.close()
        twin.close()


async def test_a_client_whose_socket_has_a_name_is_no_other_hosts(
    document: UdpSimulator, tmp_path: Path
) -> None:
    """It could say of itself whatever it likes."""
    path = tmp_path / "hub"
    async with serving(document, path):
        with socket.socket(socket.AF_UNIX) as client:
            client.bind(f"\0{tmp_path}")
            client.connect(str(path))
            said, heard = bytearray(), bytearray()
            for request in (Hello(VERSION, "a client", pid=1), Attach(["agent1"])):
                encode(request, said)
                client.sendall(said)
                heard += await trio.to_thread.run_sync(client.recv, 65536)
            looking = await connected(path)
            status = await trio.to_thread.run_sync(looking.status)
            looking.close()
    (driver,) = {agent.driver for agent in status.agents if agent.driver}
    assert driver == f"a client (pid {os.getpid()})"


async def test_a_host_that_shows_no_certificates_again_and_again_keeps_no_other_host_out(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "MOST_HANDSHAKES", 2)
    authority = Authority(tmp_path)
    mine = authority.issue("environment")
    address = TlsAddress(Endpoint("127.0.0.1", 0), authority.issue("daemon"))
    with closing(TlsListener(address)) as remote, ExitStack() as stack:
        place = remote.socket.getsockname()[:2]
        async with serving(document, tmp_path / "hub", remote=remote):
            silent = [
                stack.enter_context(socket.create_connection(place, 5, source_address=("127.0.0.2", 0)))
                for _ in range(2)
            ]
            client = await trio.to_thread.run_sync(
                partial(HubClient.connect, f"tls://127.0.0.1:{place[1]}", tls=mine, timeout=10.0)
            )
            # Who waits longest has given way, and nobody else.
            assert await trio.to_thread.run_sync(silent[0].recv, 1) == b""
            silent[1].setblocking(False)
            with pytest.raises(BlockingIOError):
                silent[1].recv(1)
            client.close()


class Denying:
    """A listener whose host denies the first connections, as a firewall or a security module does."""

    def __init__(self, listener: socket.socket, *errors: int) -> None:
        self._listener = listener
        self._errors = list(errors)

    def fileno(self) -> int:
        return self._listener.fileno()

    def accept(self) -> Any:
        if self._errors:
            number = self._errors.pop()
            raise OSError(number, os.strerror(number))
        return self._listener.accept()


async def test_a_connection_that_the_host_denies_does_not_end_the_hub(
    document: UdpSimulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_server, "TRY_AGAIN", 0.01)
    accepting = HubServer._accept

    def denied(server: HubServer, listener: socket.socket, *rest: Any) -> Any:
        return accepting(server, denying.setdefault(listener, Denying(listener, *errors)), *rest)  # type: ignore[arg-type]

    denying: dict[socket.socket, Denying] = {}
    errors = (errno.EPERM, errno.EACCES, errno.EPROTO, errno.ENETDOWN, errno.EMFILE)
    monkeypatch.setattr(HubServer, "_accept", denied)
    path = tmp_path / "hub"
    with capture_logs() as logs:
        async with serving(document, path):
            client = await connected(path)
            assert (await trio.to_thread.run_sync(client.status)).clients == 1
            client.close()
    (told,) = [line for line in logs if line["event"] == "cannot accept an environment"]
    assert told["reason"] == os.strerror(errno.EMFILE)


async def test_a_request_that_names_too_many_agents_is_refused(
    document: UdpSimulator, tmp_path: Path
) -> None:
    path = tmp_path / "hub"
    async with serving(document, path):
        client = await connected(path)
        with pytest.raises(LocalProtocolError, match="the limit is"):
            await trio.to_thread.run_sync(client.attach_all, ["agent1"] * (MOST_PATTERNS + 1))
