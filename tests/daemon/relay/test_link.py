"""Upstreams that are there and cannot be talked to: certificates, names and networks. No daemon ends of it."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import trio

from ospbridge.daemon.relay.link import Connection, Link
from ospbridge.errors import ConfigurationError, UpstreamLost
from ospbridge.rllink.client import ClientMachine
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.exchanges import deliver, greet
from ospbridge.rllink.messages import EpisodeFragment, Episodes, Pong
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.tls import StreamAddress, TlsFiles, parse_stream
from tests.daemon import running
from tests.daemon.certificates import Authority
from tests.daemon.relay.driving import WITHIN, until
from tests.daemon.relay.observing import Server, listening, showing
from tests.daemon.running import Daemon
from tests.daemon.stage import Logs
from tests.in_threads import in_thread

pytestmark = pytest.mark.loopback
FAULTS = {
    "expired": "certificate has expired",
    "another host": "IP address mismatch",
    "another ca": "unable to get local issuer certificate",
}


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def faulty(authority: Authority, fault: str) -> TlsFiles:
    """What somebody shows whose certificate does not hold."""
    if fault == "another ca":
        return Authority(authority.path.parent, "other").issue("faulty", trusts=authority)
    host = "192.0.2.1" if fault == "another host" else "127.0.0.1"
    return authority.issue("faulty", host=host, expired=fault == "expired")


@asynccontextmanager
async def linked(address: StreamAddress) -> AsyncIterator[Link]:
    """A link that runs; whatever ends it ends the test."""
    link = Link(address, limits=Limits())
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            yield link
            nursery.cancel_scope.cancel()


def away(logs: Iterable[Any]) -> Any:
    """It is said once."""
    (told,) = [line for line in logs if line["event"] == "upstream away"]
    return told


@pytest.mark.trio
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_certificate_that_does_not_hold_is_told_and_another_one_is_waited_for(
    authority: Authority, fault: str, logs: Logs
) -> None:
    server = Server(tls=showing(faulty(authority, fault)))
    async with listening(server.serve) as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=TlsFiles(ca=authority.path))
        async with linked(address) as link:
            await until(lambda: link._plan.in_vain > 3)
            assert f"{address} does not hold: {FAULTS[fault]}" in link.trouble
            server.tls = showing(authority.issue("server"))
            await link.connection()
            assert link.trouble == ""
    assert "does not hold" in away(logs)["reason"]
    assert "it must be valid now" in away(logs)["hint"]


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
    authority: Authority, mine: str, words: str, newest: ssl.TLSVersion, logs: Logs
) -> None:
    shown = authority.issue("server")
    tls = TlsFiles(ca=authority.path) if mine == "none" else faulty(authority, mine)
    server = Server(tls=showing(shown, asks=True, newest=newest), dialect=MSGPACK)
    async with listening(server.serve) as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=tls)
        async with linked(address) as link:
            # Uneven, since of two dialects in turn the first would be next otherwise.
            await until(lambda: link._plan.in_vain == 3)
            server.tls = showing(shown)
            await link.connection()
    assert "dismissed" not in server.ends
    assert away(logs)["reason"].startswith(f"{address} refuses the TLS connection: ")
    assert words in away(logs)["reason"]
    assert "it may want a certificate" in away(logs)["hint"]


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
async def test_a_name_server_that_is_away_is_waited_for(wrong: OSError, logs: Logs) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(wrong, times=3))
    async with listening(Server().serve) as port, linked(parse_stream(f"trainer:{port}")) as link:
        await link.connection()
    assert away(logs)["reason"] == f"the host name 'trainer' does not resolve: {wrong.strerror}"
    assert "name server" in away(logs)["hint"]


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


@pytest.mark.usefixtures("runtime_directory")
def test_a_daemon_lives_on_beside_an_upstream_that_is_refused_until_a_certificate_is_renewed(
    tmp_path: Path, authority: Authority
) -> None:
    ours, words = authority.issue("daemon"), "does not hold: certificate has expired"
    server = Server(tls=showing(faulty(authority, "expired"), asks=True))
    files = ("--rllink-tls-ca", ours.ca, "--rllink-tls-cert", ours.cert, "--rllink-tls-key", ours.key)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, in_thread(listening(server.serve)) as port:
        options = ["--rllink", f"tls://127.0.0.1:{port}", "--rllink-mode", "observe", "--rllink-unannotated"]
        with Daemon(simulator.address, *options, *map(str, files), directory=tmp_path) as daemon:
            running.until(lambda: words in daemon.status().upstreams[0].trouble)
            env = gymnasium.make("ospbridge/Agent-v0", wait=WITHIN)
            env.reset(seed=1)
            assert not any(env.step(env.action_space.sample())[3] for _ in range(5))
            env.close()
            line = away(daemon.lines("upstream away"))
            assert words in line["reason"]
            assert "valid now" in line["hint"]
            server.tls = showing(authority.issue("server"), asks=True)
            running.until(lambda: daemon.status().upstreams[0].trouble == "")
            running.until(lambda: daemon.status().upstreams[0].delivered == 5)
            assert daemon.end() == 0


# --- slow and broken networks, in virtual time -------------------------------------------------------------------


STEPS = 10_000
"""Of some 100 bytes each."""
LONG = EpisodeFragment(
    "long",
    np.zeros((STEPS + 1, 16), np.float32),
    np.zeros((STEPS, 4), np.float32),
    np.zeros(STEPS, np.float32),
)
GREETING = 1000
"""Bytes, of which a greeting is less and experience more."""


class Network:
    """Takes what it is given in so many seconds each time, up to so many bytes; answers each PING that arrived."""

    def __init__(self, seconds: float, *, most: float = float("inf")) -> None:
        self.heard = b""
        self._seconds, self._most = seconds, most
        self._answered = 0
        self._news = trio.Event()

    async def send_all(self, data: Any) -> None:
        if len(self.heard) >= self._most:
            await trio.sleep_forever()
        if len(data) > GREETING:
            await trio.sleep(self._seconds)
        self.heard += bytes(data)
        self._news.set()

    async def receive_some(self, _: int) -> bytes:
        while self._answered >= self.heard.count(b"PING"):
            await self._news.wait()
            self._news = trio.Event()
        self._answered += 1
        return bytes(MSGPACK.encode(Pong()))


async def delivered(network: Network, proof: float) -> Connection:
    stream: Any = network
    connection = Connection(stream, ClientMachine(MSGPACK, limits=Limits(proof=proof)), lambda _: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.read)
        await connection.perform(greet)
        try:
            await connection.perform(partial(deliver, messages=[Episodes((LONG,))]))
        finally:
            nursery.cancel_scope.cancel()
    return connection


@pytest.mark.trio
async def test_what_arrives_slower_than_the_limit_of_its_proof_arrives_all_the_same(
    autojump_clock: object,
) -> None:
    network, began = Network(0.9), trio.current_time()
    await delivered(network, proof=1.0)
    assert len(network.heard) > 80 * STEPS
    assert trio.current_time() - began > 5.0


@pytest.mark.trio
async def test_a_network_that_takes_nothing_more_is_told_with_what_it_took(autojump_clock: object) -> None:
    await trio.sleep(10.0)  # Patience is no point of time.
    with pytest.RaisesGroup(
        pytest.RaisesExc(UpstreamLost, match=r"took 131072 of \d{6} bytes, and nothing more for 0\.5 s")
    ):
        await delivered(Network(0.1, most=100_000), proof=0.5)


class Broken:
    """A stream of which the kernel says this."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def receive_some(self, _: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError from OSError(self._number, os.strerror(self._number))


@pytest.mark.trio
@pytest.mark.parametrize(
    "number, told",
    [
        (errno.ETIMEDOUT, "nothing reaches far:5555 any more: Connection timed out"),
        (errno.ECONNRESET, "far:5555 closed the connection"),
    ],
)
async def test_a_network_that_is_gone_is_no_server_that_closed_the_connection(number: int, told: str) -> None:
    machine = ClientMachine(MSGPACK, limits=Limits(), peer="far:5555")
    stream: Any = Broken(number)
    await Connection(stream, machine, lambda _: None).read()
    assert machine.lost is not None
    assert machine.lost.message == told
