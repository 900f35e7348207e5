"""Upstreams that are there and cannot be talked to: certificates, and names. No daemon ends of it, all are told why."""

from __future__ import annotations

import socket
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.daemon.relay.link import Link
from ospbridge.errors import ConfigurationError
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.tls import StreamAddress, TlsFiles, parse_stream
from tests.daemon.certificates import Authority
from tests.daemon.relay.driving import WITHIN, until
from tests.daemon.relay.learner import eventually
from tests.daemon.relay.observing import Server, listening, showing
from tests.daemon.running import Daemon
from tests.in_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ospbridge.transport.tls import TlsFiles

pytestmark = pytest.mark.loopback
FAULTS = {
    "expired": "certificate has expired",
    "another host": "IP address mismatch",
    "another ca": "unable to get local issuer certificate",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def faulty(authority: Authority, directory: Path, fault: str) -> TlsFiles:
    """What a server shows whose certificate does not hold."""
    if fault == "another ca":
        return Authority(directory, "other").issue("faulty", trusts=authority)
    host = "192.0.2.1" if fault == "another host" else "127.0.0.1"
    return authority.issue("faulty", host=host, expired=fault == "expired")


# --- a link ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def linked(address: StreamAddress) -> AsyncIterator[Link]:
    """A link that runs; whatever ends it ends the test."""
    link = Link(address, limits=Limits())
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            yield link
            nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_certificate_that_does_not_hold_is_told_and_another_one_is_waited_for(
    tmp_path: Path, authority: Authority, fault: str
) -> None:
    server = Server(tls=showing(faulty(authority, tmp_path, fault)))
    async with listening(server.serve) as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=TlsFiles(ca=authority.path))
        with capture_logs() as lines:
            async with linked(address) as link:
                await until(lambda: link._plan.in_vain > 3)
                assert f"{address} does not hold: {FAULTS[fault]}" in link.trouble
                server.tls = showing(authority.issue("server"))
                await link.connection()
                assert link.trouble == ""
    # It goes on, and is said once.
    (told,) = [line for line in lines if line["event"] == "upstream away"]
    assert "does not hold" in told["reason"]
    assert "it must be valid now" in told["hint"]


@pytest.mark.trio
@pytest.mark.parametrize(
    "mine, words, newest",
    [
        ("none", "", ssl.TLSVersion.TLSv1_2),
        ("none", "", ssl.TLSVersion.TLSv1_3),
        ("expired", "certificate expired", ssl.TLSVersion.TLSv1_3),
        ("another ca", "unknown ca", ssl.TLSVersion.TLSv1_2),
    ],
)
async def test_a_server_that_refuses_our_certificate_is_told_and_asked_again_in_the_same_dialect(
    tmp_path: Path, authority: Authority, mine: str, words: str, newest: ssl.TLSVersion
) -> None:
    shown = authority.issue("server")
    files = None if mine == "none" else faulty(authority, tmp_path, mine)
    tls = TlsFiles(files.cert if files else None, files.key if files else None, authority.path)
    server = Server(tls=showing(shown, asks=True, newest=newest), dialect=MSGPACK)
    async with listening(server.serve) as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=tls)
        with capture_logs() as lines:
            async with linked(address) as link:
                # Uneven, since of two dialects in turn the first would be next otherwise.
                await until(lambda: link._plan.in_vain == 3)
                server.tls = showing(shown)
                await link.connection()
    assert "dismissed" not in server.ends
    (told,) = [line for line in lines if line["event"] == "upstream away"]
    assert told["reason"].startswith(f"{address} refuses the TLS connection: ")
    assert words in told["reason"]
    assert "it may want a certificate" in told["hint"]


class Resolver(trio.abc.HostnameResolver):
    """A name server that says ``wrong`` first, ``times`` times, and then 127.0.0.1."""

    def __init__(self, wrong: OSError, times: int) -> None:
        self._wrong = [wrong] * times

    async def getaddrinfo(self, host: object, port: object, *_: object) -> Any:
        if self._wrong:
            raise self._wrong.pop()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    async def getnameinfo(self, *_: object) -> Any:
        raise NotImplementedError


@pytest.mark.trio
@pytest.mark.parametrize(
    "wrong", [socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), OSError(24, "Too many open files")]
)
async def test_a_name_server_that_is_away_is_waited_for(wrong: OSError) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(wrong, times=3))
    async with listening(Server().serve) as port:
        with capture_logs() as lines:
            async with linked(parse_stream(f"trainer:{port}")) as link:
                await link.connection()
    told = [line for line in lines if line["event"] == "upstream away"]
    assert [line["reason"] for line in told] == [
        f"the host name 'trainer' does not resolve: {wrong.strerror}"
    ]
    assert "name server" in told[0]["hint"]


@pytest.mark.trio
@pytest.mark.parametrize("wrong", ["name", "key"])
async def test_what_is_wrong_with_our_own_settings_is_not_waited_for(
    authority: Authority, wrong: str
) -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "not known")
    trio.socket.set_custom_hostname_resolver(Resolver(unknown, times=1))
    files = authority.issue("client")
    key = authority.issue("other").key if wrong == "key" else files.key
    tls = TlsFiles(files.cert, key, authority.path)
    with trio.fail_after(WITHIN), pytest.raises(ConfigurationError):
        await Link(parse_stream("tls://trainer:5555", tls=tls), limits=Limits()).run()


# --- a daemon ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("runtime_directory")
def test_a_daemon_lives_on_beside_an_upstream_that_is_refused_until_a_certificate_is_renewed(
    tmp_path: Path, authority: Authority
) -> None:
    ours, words = authority.issue("daemon"), "does not hold: certificate has expired"
    server = Server(tls=showing(faulty(authority, tmp_path, "expired"), asks=True))
    files = ("--rllink-tls-ca", ours.ca, "--rllink-tls-cert", ours.cert, "--rllink-tls-key", ours.key)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, in_thread(listening(server.serve)) as port:
        options = ["--rllink", f"tls://127.0.0.1:{port}", "--rllink-mode", "observe", "--rllink-unannotated"]
        with Daemon(simulator.address, *options, *map(str, files), directory=tmp_path) as daemon:
            eventually(lambda: words in daemon.status().upstreams[0].trouble, daemon)
            env = gymnasium.make("ospbridge/Agent-v0", wait=WITHIN)
            env.reset(seed=1)
            for _ in range(5):
                assert not env.step(env.action_space.sample())[3]
            env.close()
            (line,) = daemon.lines("upstream away")
            assert words in line["reason"]
            assert "valid now" in line["hint"]
            server.tls = showing(authority.issue("server"), asks=True)
            eventually(lambda: daemon.status().upstreams[0].trouble == "", daemon)
            eventually(lambda: daemon.status().upstreams[0].delivered == 5, daemon)
            assert daemon.end() == 0
