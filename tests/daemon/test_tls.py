"""Environments of other hosts: TCP with mutual TLS, and what wrong certificates and other peers are told."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import pytest

import ospbridge
from ospbridge.errors import AgentTaken, ConfigurationError, HubLost, HubNotFound, OspBridgeError
from ospbridge.interface import Endpoint
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import expected
from ospbridge.transport.tls import TlsAddress
from tests.daemon.certificates import Authority
from tests.daemon.running import Daemon, LocalDaemon, in_thread, run_here, seat_of, until, values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator
    from ospbridge.transport.tls import TlsFiles

assert ospbridge.__version__
pytestmark = pytest.mark.loopback


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def free_tcp_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextmanager
def listening(simulator: UdpSimulator, directory: Path, files: TlsFiles) -> Iterator[tuple[Daemon, str]]:
    """A daemon in a process of its own, and its bridge."""
    port = free_tcp_port()
    options = ("--listen", f"127.0.0.1:{port}", "--tls-cert", str(files.cert), "--tls-key", str(files.key))
    with Daemon(simulator.address, *options, "--tls-ca", str(files.ca), directory=directory) as daemon:
        yield daemon, f"tls://127.0.0.1:{port}"


@contextmanager
def hub(simulator: UdpSimulator, files: TlsFiles) -> Iterator[tuple[LocalDaemon, str]]:
    port = free_tcp_port()
    with LocalDaemon(simulator.address, listen=TlsAddress(Endpoint("127.0.0.1", port), files)) as daemon:
        yield daemon, f"tls://127.0.0.1:{port}"


def place(bridge: str) -> tuple[str, int]:
    return "127.0.0.1", int(bridge.rpartition(":")[2])


def refused(daemon: LocalDaemon, count: int) -> list[dict[str, Any]]:
    """What the daemon logged of them, once there are ``count``: it does so after they hung up."""
    until(lambda: len(daemon.lines("an environment of another host was refused")) >= count)
    return daemon.lines("an environment of another host was refused")


def made(bridge: str, files: TlsFiles, agent: str) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(
        "ospbridge/Agent-v0",
        bridge=bridge,
        agent=agent,
        tls_cert=str(files.cert),
        tls_key=str(files.key),
        tls_ca=str(files.ca),
    )


# --- those who may ---------------------------------------------------------------------------------------------------


def test_an_environment_plays_over_tls_as_beside_the_daemon(
    document: UdpSimulator, authority: Authority, tmp_path: Path
) -> None:
    mine = authority.issue("environment")
    with listening(document, tmp_path, authority.issue("daemon")) as (daemon, bridge):
        env, twin = made(bridge, mine, "agent1"), made(bridge, mine, "agent1")
        twin.close()
        env.reset(seed=9)
        for number in range(100):
            observation, _, _, truncated, _ = env.step(values(number / 256))
            assert not truncated
            np.testing.assert_array_equal(observation, expected(values(number / 256), number + 2, 3, seed=9))
        with pytest.raises(AgentTaken, match=r"on 127\.0\.0\.1"):
            seat_of("agent1")
        env.close()
        with closing(seat_of("agent1")) as seat:
            seat.reset(1)
        assert daemon.status().agents[0].state == "free"


def test_an_environment_killed_in_the_barrier_frees_its_agent(
    document: UdpSimulator, authority: Authority
) -> None:
    mine = authority.issue("environment")
    with hub(document, authority.issue("daemon")) as (daemon, bridge):
        client = HubClient.connect(bridge, tls=mine)
        client.attach("agent1").reset(1)
        with closing(seat_of("agent2")) as seat:
            client.lose()
            daemon.wait_until("free", "agent1")
            in_thread(lambda: seat.reset(1))
            assert not seat.step(values(0.5)).truncated


# --- those who may not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case, words", [("stranger", "unknown ca"), ("expired", "certificate expired")])
def test_an_environment_whose_certificate_does_not_hold_is_refused_on_both_sides(
    case: str, words: str, document: UdpSimulator, authority: Authority, tmp_path: Path
) -> None:
    if case == "stranger":
        mine = Authority(tmp_path, "other").issue(case, trusts=authority)
    else:
        mine = authority.issue(case, expired=True)
    with hub(document, authority.issue("daemon")) as (daemon, bridge):
        with pytest.raises(ConfigurationError, match=words) as caught:
            HubClient.connect(bridge, tls=mine)
        assert "signed by the CA" in caught.value.hint
        assert daemon.status().ready
        (line,) = refused(daemon, 1)
        assert line["host"] == "127.0.0.1"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_an_environment_without_a_certificate_or_with_an_old_tls_is_refused(
    document: UdpSimulator, authority: Authority
) -> None:
    without = ssl.create_default_context(cafile=str(authority.path))
    without.verify_flags |= ssl.VERIFY_X509_STRICT
    aged = old(ssl.PROTOCOL_TLS_CLIENT)
    aged.load_verify_locations(authority.path)
    with hub(document, authority.issue("daemon")) as (daemon, bridge):
        for context, why in ((without, r"(?i)certificate.required"), (aged, r"(?i)protocol.version")):
            with (
                socket.create_connection(place(bridge), 5) as plain,
                pytest.raises(ssl.SSLError, match=why),
                context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
            ):
                sock.recv(1)
        assert daemon.status().ready
        assert "no TLS of version 1.2 or later" in json.dumps(refused(daemon, 2))


def test_whoever_is_refused_again_and_again_does_not_fill_the_log(
    document: UdpSimulator, authority: Authority
) -> None:
    """As where something looks every second whether the port is open."""
    with hub(document, authority.issue("daemon")) as (daemon, bridge):
        for says in (*5 * [b"GET / HTTP/1.1\r\n\r\n"], b"\x16\x03\x01\xff\xff" + bytes(400)):
            with socket.create_connection(place(bridge), 5) as plain, suppress(OSError):
                plain.sendall(says)
                while plain.recv(100):
                    pass
        assert len(refused(daemon, 2)) == 2


@pytest.mark.parametrize(
    "how, words",
    [({"expired": True}, "certificate has expired"), ({"host": "10.1.2.3"}, "IP address mismatch")],
    ids=["expired", "another host"],
)
def test_a_daemon_whose_certificate_does_not_hold_is_refused(
    how: dict[str, Any], words: str, authority: Authority
) -> None:
    context = authority.issue("daemon", **how).context(server=True)

    def answer(plain: socket.socket) -> None:
        with suppress(OSError):
            context.wrap_socket(plain, server_side=True)

    with peer(answer) as bridge, pytest.raises(ConfigurationError, match=words) as caught:
        HubClient.connect(bridge, tls=authority.issue("environment"))
    assert "tls_ca" in caught.value.hint


# --- those who are no hub --------------------------------------------------------------------------------------------


def old(protocol: int) -> ssl.SSLContext:
    """Nothing newer than TLS 1.1, as an old host speaks it."""
    context = ssl.SSLContext(protocol)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    return context


@contextmanager
def peer(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """``tls://...`` of one who answers one connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            sock, _ = server.accept()
            with sock, suppress(OSError):
                sock.settimeout(10)
                answer(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


@pytest.mark.parametrize(
    "says, error, words",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ConfigurationError, "is no hub"),
        (b"", HubLost, r"does not greet as a hub does: no reply within 0\.3 s"),
        (None, HubLost, "does not greet as a hub does: the stream ended"),
    ],
    ids=["http", "silence", "hangs up"],
)
def test_a_tls_server_that_is_no_hub_is_named(
    says: bytes | None, error: type[OspBridgeError], words: str, authority: Authority
) -> None:
    context = authority.issue("daemon").context(server=True)

    def answer(plain: socket.socket) -> None:
        with context.wrap_socket(plain, server_side=True) as sock:
            while sock.recv(4096) and says is not None:
                sock.sendall(says)

    with peer(answer) as bridge, pytest.raises(error, match=words) as caught:
        HubClient.connect(bridge, timeout=0.3 if says == b"" else 10.0, tls=authority.issue("environment"))
    assert bridge in caught.value.message
    assert "`ospbridge connect --listen`" in caught.value.hint


def test_nobody_there_and_half_a_configuration_are_told(authority: Authority, tmp_path: Path) -> None:
    mine = authority.issue("environment")
    bridge = f"tls://127.0.0.1:{free_tcp_port()}"
    with pytest.raises(HubNotFound, match="no daemon listens at tls://127") as caught:
        HubClient.connect(bridge, tls=mine)
    assert "--listen HOST:PORT" in caught.value.hint
    with pytest.raises(ConfigurationError, match="three files"):
        HubClient.connect(bridge)
    with pytest.raises(ConfigurationError, match="on this host"):
        HubClient.connect(tls=mine)
    for wrong in ("tls://", "tls://host", "tls:host:1", "tls://host:0"):
        with pytest.raises(ConfigurationError):
            HubClient.connect(wrong, tls=mine)
    files = authority.issue("other")
    for broken, words in (
        (type(mine)(mine.cert, files.key, mine.ca), "no certificate and its key"),
        (type(mine)(mine.cert, mine.key, mine.key), "no CA certificates"),
        (type(mine)(tmp_path / "none", mine.key, mine.ca), "cannot read"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            HubClient.connect(bridge, tls=broken)
    done = run_here("connect", "--listen", "127.0.0.1:1")
    assert (done.exit_code, "--tls-cert" in done.stderr) == (78, True)
    done = run_here("connect", "--tls-cert", str(files.cert))
    assert (done.exit_code, "--listen" in done.stderr) == (2, True)
