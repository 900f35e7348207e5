"""Upstreams that are there and cannot be talked to: certificates, and names. No daemon ends of it, all are told why."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import gymnasium
import pytest
import trio
from structlog.testing import capture_logs

import ospbridge.daemon.relay.link
from ospbridge.daemon.relay.link import Link
from ospbridge.errors import ConfigurationError, RemoteProtocolError
from ospbridge.rllink import connecting
from ospbridge.rllink.client import ClientMachine
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.server import ServerMachine
from ospbridge.rllink.timing import Limits
from ospbridge.simulator.synthetic import SyntheticWorld
from ospbridge.simulator.udp import UdpSimulator
from ospbridge.transport.stream_addresses import ServerTls, StreamAddress, parse_stream
from ospbridge.transport.stream_ends import last_word
from ospbridge.transport.streams import open_stream
from tests.daemon.certificates import Authority
from tests.daemon.running import Daemon
from tests.in_threads import in_thread
from tests.kept import uncollected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ospbridge.transport.stream_ends import Stream
    from ospbridge.transport.tls import TlsFiles

pytestmark = pytest.mark.loopback
WITHIN = 20.0
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


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECYCLING", "LONGEST_PAUSE", "REFUSED_AGAIN", "LONGEST_REFUSED"):
        monkeypatch.setattr(connecting, name, 0.02)


def showing(files: TlsFiles, *, asks: bool = False, newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    if newest is not None:
        context.maximum_version = newest
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(files.ca)
    return context


class Server:
    """RLlink with whoever finishes the handshake. ``context`` is what the next connection meets; None: no TLS."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.dismissed = 0
        """Who spoke something else than msgpack."""

    async def handle(self, plain: trio.SocketStream) -> None:
        stream: Stream = plain
        if self.context is not None:
            stream = trio.SSLStream(plain, self.context, server_side=True, https_compatible=True)
        machine = ServerMachine(SetConfig(env_steps_per_sample=10), dialect=MSGPACK)
        try:
            while data := await stream.receive_some(100_000):
                machine.receive(data)
                while machine.next_event() is not None:
                    pass
                for part in machine.data_to_send():
                    await stream.send_all(part)
        except RemoteProtocolError:
            self.dismissed += 1
        except trio.BrokenResourceError:
            await last_word(stream)
        finally:
            await trio.aclose_forcefully(stream)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The port at 127.0.0.1."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, self.handle, [listener])
            yield listener.socket.getsockname()[1]
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def linked(address: StreamAddress) -> AsyncIterator[Link]:
    """A link that runs; whatever ends it ends the test."""
    link = Link(address, limits=Limits())
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            yield link
            nursery.cancel_scope.cancel()


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.01)


@pytest.mark.trio
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_certificate_that_does_not_hold_is_told_and_another_one_is_waited_for(
    tmp_path: Path, authority: Authority, fault: str
) -> None:
    server = Server(showing(faulty(authority, tmp_path, fault)))
    async with server.listening() as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=ServerTls(authority.path))
        with capture_logs() as lines:
            async with linked(address) as link:
                await until(lambda: link._plan.in_vain > 3)
                assert f"{address} does not hold: {FAULTS[fault]}" in link.trouble
                server.context = showing(authority.issue("server"))
                await link.connection()
                assert link.trouble == ""
    # It goes on, and is said once.
    (told,) = [line for line in lines if line["event"] == "upstream away"]
    assert "does not hold" in told["reason"]
    assert "it must be valid now" in told["hint"]


@pytest.mark.trio
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
@pytest.mark.parametrize(
    "mine, words", [("none", ""), ("expired", "certificate expired"), ("another ca", "unknown ca")]
)
async def test_a_server_that_refuses_our_certificate_is_told_and_asked_again_in_the_same_dialect(
    tmp_path: Path, authority: Authority, mine: str, words: str, newest: ssl.TLSVersion
) -> None:
    shown = authority.issue("server")
    files = None if mine == "none" else faulty(authority, tmp_path, mine)
    tls = ServerTls(authority.path, files.cert if files else None, files.key if files else None)
    server = Server(showing(shown, asks=True, newest=newest))
    async with server.listening() as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=tls)
        with capture_logs() as lines:
            async with linked(address) as link:
                # Uneven, since of two dialects in turn the first would be next otherwise.
                await until(lambda: link._plan.in_vain == 3)
                server.context = showing(shown)
                await link.connection()
    assert server.dismissed == 0
    (told,) = [line for line in lines if line["event"] == "upstream away"]
    assert told["reason"].startswith(f"{address} refuses the TLS connection: ")
    assert words in told["reason"]
    assert "it may want a certificate" in told["hint"]


@contextmanager
def resetting(context: ssl.SSLContext) -> Iterator[int]:
    """A server that reads no more than the handshake, and closes over what came after; its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with plain, suppress(ssl.SSLError):
                        plain.settimeout(WITHIN)
                        context.wrap_socket(plain, server_side=True).close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            # Closing alone wakes nobody.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WITHIN)


@pytest.mark.trio
@pytest.mark.usefixtures("short_pauses")
async def test_a_refusal_is_read_although_nothing_can_be_sent_any_more(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slowly(address: StreamAddress, **given: Any) -> Any:
        stream = await open_stream(address, **given)
        # The connection is reset by now.
        await trio.sleep(0.02)
        return stream

    monkeypatch.setattr(ospbridge.daemon.relay.link, "open_stream", slowly)
    seen = []
    with resetting(showing(authority.issue("server"), asks=True)) as port:
        link = Link(
            parse_stream(f"tls://127.0.0.1:{port}", tls=ServerTls(authority.path)),
            limits=Limits(),
            on_change=lambda: seen.append(link.trouble),
        )
        with trio.fail_after(WITHIN):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(link.run)
                await until(lambda: len(seen) >= 20)
                nursery.cancel_scope.cancel()
    assert {trouble.rpartition(" ")[2] for trouble in seen} == {"required"}


@pytest.mark.trio
@pytest.mark.usefixtures("short_pauses")
async def test_a_connection_that_was_refused_is_freed(authority: Authority) -> None:
    server = Server(showing(authority.issue("server"), asks=True))
    async with server.listening() as port:
        address = parse_stream(f"tls://127.0.0.1:{port}", tls=ServerTls(authority.path))
        with uncollected(ClientMachine) as machines:
            async with linked(address) as link:
                await until(lambda: link._plan.in_vain > 5)
                await until(lambda: machines() == 0)


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
@pytest.mark.usefixtures("short_pauses")
@pytest.mark.parametrize(
    "wrong", [socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), OSError(24, "Too many open files")]
)
async def test_a_name_server_that_is_away_is_waited_for(wrong: OSError) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(wrong, times=3))
    async with Server(None).listening() as port:
        with capture_logs() as lines:
            async with linked(parse_stream(f"trainer:{port}")) as link:
                await link.connection()
    told = [line for line in lines if line["event"] == "upstream away"]
    assert [line["reason"] for line in told] == [
        f"the host name 'trainer' does not resolve: {wrong.strerror}"
    ]
    assert "name server" in told[0]["hint"]


@pytest.mark.trio
@pytest.mark.parametrize("wrong", ["key", "ca", "name"])
async def test_what_is_wrong_with_our_own_settings_is_not_waited_for(
    authority: Authority, wrong: str
) -> None:
    trio.socket.set_custom_hostname_resolver(
        Resolver(socket.gaierror(socket.EAI_NONAME, "not known"), times=1)
    )
    files, other = authority.issue("client"), authority.issue("other")
    tls = ServerTls(
        authority.path if wrong != "ca" else files.key,
        files.cert,
        other.key if wrong == "key" else files.key,
    )
    link = Link(parse_stream("tls://trainer:5555", tls=tls), limits=Limits())
    with trio.fail_after(WITHIN), pytest.raises(ConfigurationError):
        await link.run()


# --- a daemon ----------------------------------------------------------------------------------------------------


def eventually(condition: Callable[[], object], daemon: Daemon) -> None:
    give_up = time.monotonic() + WITHIN
    while not condition():
        assert daemon.process.poll() is None, daemon.log.read_text()[-3000:]
        assert time.monotonic() < give_up, daemon.log.read_text()[-3000:]
        time.sleep(0.05)


def play_five_steps() -> None:
    env = gymnasium.make("ospbridge/Agent-v0", wait=WITHIN)
    env.reset(seed=1)
    for _ in range(5):
        assert not env.step(env.action_space.sample())[3]
    env.close()


@pytest.mark.usefixtures("runtime_directory")
@pytest.mark.parametrize(
    "fault, words",
    [
        ("expired", "does not hold: certificate has expired"),
        ("another host", "does not hold: IP address mismatch"),
        ("refuses ours", "refuses the TLS connection: sslv3 alert certificate expired"),
    ],
)
def test_a_daemon_lives_on_beside_an_upstream_that_is_refused_until_a_certificate_is_renewed(
    tmp_path: Path, authority: Authority, fault: str, words: str
) -> None:
    ours = authority.issue("daemon", expired=fault == "refuses ours")
    good = authority.issue("server")
    bad = good if fault == "refuses ours" else faulty(authority, tmp_path, fault)
    server = Server(showing(bad, asks=True))
    files = ("--rllink-tls-ca", ours.ca, "--rllink-tls-cert", ours.cert, "--rllink-tls-key", ours.key)
    with UdpSimulator(SyntheticWorld(1, 1), port=0) as simulator, in_thread(server.listening()) as port:
        options = ["--rllink", f"tls://127.0.0.1:{port}", "--rllink-mode", "observe", "--rllink-unannotated"]
        with Daemon(simulator.address, *options, *map(str, files), directory=tmp_path) as daemon:
            eventually(lambda: words in daemon.status().upstreams[0].trouble, daemon)
            play_five_steps()
            (line,) = daemon.lines("upstream away")
            assert words in line["reason"]
            assert "valid now" in line["hint"]
            # Files are read whenever a connection begins: nothing needs to be said to the daemon.
            authority.issue("daemon")
            server.context = showing(good, asks=True)
            eventually(lambda: daemon.status().upstreams[0].trouble == "", daemon)
            eventually(lambda: daemon.status().upstreams[0].delivered == 5, daemon)
            assert daemon.end() == 0
