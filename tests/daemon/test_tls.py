"""Environments of other hosts: TCP with mutual TLS, and what wrong certificates and other peers are told."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ospbridge.envs.hub import AgentHandle
from ospbridge.errors import AgentTaken, ConfigurationError, HubLost, HubNotFound, OspBridgeError
from ospbridge.interface import Endpoint
from ospbridge.session.hub_client import HubClient
from ospbridge.simulator.synthetic import expected
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.tls import TlsAddress
from tests.daemon.certificates import Authority
from tests.daemon.running import LocalDaemon, at_once, free_port, run_here, seat_of, until, values

pytestmark = pytest.mark.loopback


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port() -> int:
    return free_port(socket.SOCK_STREAM)


@pytest.fixture
def bridge(port: int) -> str:
    return f"tls://127.0.0.1:{port}"


@pytest.fixture
def daemon(document: UdpSimulator, authority: Authority, port: int) -> Iterator[LocalDaemon]:
    """Listens there."""
    listen = TlsAddress(Endpoint("127.0.0.1", port), authority.issue("daemon"))
    with LocalDaemon(document.address, listen=listen) as running:
        yield running


def refused(daemon: LocalDaemon, count: int) -> list[dict[str, Any]]:
    """What the daemon logged of them, once there are ``count``: it does so after they hung up."""
    until(lambda: len(daemon.lines("an environment of another host was refused")) >= count)
    assert daemon.status().ready
    return daemon.lines("an environment of another host was refused")


# --- those who may ---------------------------------------------------------------------------------------------------


def test_an_environment_plays_over_tls_as_beside_the_daemon(
    daemon: LocalDaemon, bridge: str, authority: Authority
) -> None:
    mine = authority.issue("environment")
    files: dict[str, Any] = {"tls_cert": str(mine.cert), "tls_key": str(mine.key), "tls_ca": str(mine.ca)}
    env, twin = (
        gymnasium.make("ospbridge/Agent-v0", bridge=bridge, agent="agent1", **files) for _ in range(2)
    )
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
    daemon: LocalDaemon, bridge: str, authority: Authority
) -> None:
    client = HubClient.connect(bridge, tls=authority.issue("environment"))
    AgentHandle.attach(client, "agent1").reset(1)
    with closing(seat_of("agent2")) as seat:
        client.lose()
        daemon.wait_until("free", "agent1")
        at_once(lambda: seat.reset(1))
        assert not seat.step(values(0.5)).truncated


# --- those who may not -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case, words", [("stranger", "unknown ca"), ("expired", "certificate expired")])
def test_an_environment_whose_certificate_does_not_hold_is_refused_on_both_sides(
    case: str, words: str, daemon: LocalDaemon, bridge: str, authority: Authority
) -> None:
    if case == "stranger":
        mine = Authority(authority.path.parent, "other").issue(case, trusts=authority)
    else:
        mine = authority.issue(case, expired=True)
    with pytest.raises(ConfigurationError, match=words) as caught:
        HubClient.connect(bridge, tls=mine)
    assert "signed by the CA" in caught.value.hint
    (line,) = refused(daemon, 1)
    assert line["host"] == "127.0.0.1"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_an_environment_without_a_certificate_or_with_an_old_tls_is_refused(
    daemon: LocalDaemon, port: int, authority: Authority
) -> None:
    without = ssl.create_default_context(cafile=str(authority.path))
    without.verify_flags |= ssl.VERIFY_X509_STRICT
    aged = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    aged.set_ciphers("DEFAULT:@SECLEVEL=0")
    aged.minimum_version, aged.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    aged.load_verify_locations(authority.path)
    for context, why in ((without, r"(?i)certificate.required"), (aged, r"(?i)protocol.version")):
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            pytest.raises(ssl.SSLError, match=why),
            context.wrap_socket(plain, server_hostname="127.0.0.1") as sock,
        ):
            sock.recv(1)
    assert "no TLS of version 1.2 or later" in json.dumps(refused(daemon, 2))


def test_whoever_is_refused_again_and_again_does_not_fill_the_log(daemon: LocalDaemon, port: int) -> None:
    """As where something looks every second whether the port is open."""
    for says in (*5 * [b"GET / HTTP/1.1\r\n\r\n"], b"\x16\x03\x01\xff\xff" + bytes(400)):
        with socket.create_connection(("127.0.0.1", port), 5) as plain, suppress(OSError):
            plain.sendall(says)
            while plain.recv(100):
                pass
    assert len(refused(daemon, 2)) == 2


# --- those who are no hub --------------------------------------------------------------------------------------------


@contextmanager
def peer(context: ssl.SSLContext, says: bytes | None) -> Iterator[str]:
    """``tls://...`` of one who answers one connection; None: by hanging up."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            plain, _ = server.accept()
            plain.settimeout(10)
            with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) as sock:
                while sock.recv(4096) and says is not None:
                    sock.sendall(says)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tls://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()


@pytest.mark.parametrize(
    "how, words",
    [({"expired": True}, "certificate has expired"), ({"host": "10.1.2.3"}, "IP address mismatch")],
    ids=["expired", "another host"],
)
def test_a_daemon_whose_certificate_does_not_hold_is_refused(
    how: dict[str, Any], words: str, authority: Authority
) -> None:
    with (
        peer(authority.issue("daemon", **how).context(server=True), None) as bridge,
        pytest.raises(ConfigurationError, match=words) as caught,
    ):
        HubClient.connect(bridge, tls=authority.issue("environment"))
    assert "tls_ca" in caught.value.hint


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
    mine = authority.issue("environment")
    with (
        peer(authority.issue("daemon").context(server=True), says) as bridge,
        pytest.raises(error, match=words) as caught,
    ):
        HubClient.connect(bridge, timeout=0.3 if says == b"" else 10.0, tls=mine)
    assert bridge in caught.value.message
    assert "`ospbridge connect --listen`" in caught.value.hint


def test_nobody_there_and_half_a_configuration_are_told(
    bridge: str, authority: Authority, tmp_path: Path
) -> None:
    mine, other = authority.issue("environment"), authority.issue("other")
    with pytest.raises(HubNotFound, match="no daemon listens at tls://127") as caught:
        HubClient.connect(bridge, tls=mine)
    assert "--listen HOST:PORT" in caught.value.hint
    for where, files, words in (
        (bridge, None, "three files"),
        (None, mine, "on this host"),
        *((wrong, mine, "tls:") for wrong in ("tls://", "tls://host", "tls:host:1", "tls://host:0")),
        (bridge, type(mine)(mine.cert, other.key, mine.ca), "no certificate and its key"),
        (bridge, type(mine)(mine.cert, mine.key, mine.key), "no CA certificates"),
        (bridge, type(mine)(tmp_path / "none", mine.key, mine.ca), "cannot read"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            HubClient.connect(where, tls=files)
    for option, code, missing in (
        (("--listen", "127.0.0.1:1"), 78, "--tls-cert"),
        (("--tls-cert", str(other.cert)), 2, "--listen"),
    ):
        done = run_here("connect", *option)
        assert (done.exit_code, missing in done.stderr) == (code, True)
