"""TCP to servers: who is believed, what is refused, and a gentle end."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from ospbridge.errors import ConfigurationError, OspBridgeError, UpstreamLost, UpstreamNotFound
from ospbridge.interface import Endpoint
from ospbridge.transport.streams import QUIET, close_gently, is_tls_failure, linger, open_stream
from ospbridge.transport.tls import StreamAddress, TlsAddress, TlsFiles, connect_tls, parse_stream
from tests.daemon.certificates import Authority
from tests.ipv6 import needs_ipv6

WITHIN = 20.0


@asynccontextmanager
async def server(
    handler: Callable[[trio.SocketStream], Awaitable[None]], *, host: str = "127.0.0.1"
) -> AsyncIterator[Endpoint]:
    (listener,) = await trio.open_tcp_listeners(0, host=host)
    port = listener.socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, handler, [listener])
        yield Endpoint(host, port)
        nursery.cancel_scope.cancel()


async def echo(stream: trio.abc.Stream) -> None:
    async for data in stream:
        await stream.send_all(data)


def tls_echo(files: TlsFiles, *, ask: bool) -> Callable[[trio.SocketStream], Awaitable[None]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(files.cert), str(files.key))
    if ask:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(str(files.ca))

    async def handle(stream: trio.SocketStream) -> None:
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        try:
            await echo(secured)
        except trio.BrokenResourceError:
            await trio.aclose_forcefully(secured)

    return handle


async def said_back(address: StreamAddress) -> bytes:
    with trio.fail_after(WITHIN):
        stream = await open_stream(address, within=WITHIN)
        await stream.send_all(b"ping")
        answer = bytes(await stream.receive_some(100))
        await close_gently(stream, within=WITHIN)
        return answer


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


# --- addresses ---------------------------------------------------------------------------------------------------


def test_certificates_for_an_address_without_tls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="an address without TLS") as caught:
        parse_stream("trainer:5555", tls=TlsFiles(ca=tmp_path / "ca.pem"))
    assert "tls://trainer:5555" in caught.value.hint


def test_a_pipe_or_a_device_is_no_certificate_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        for tls in (TlsFiles(ca=path), TlsFiles(cert=path, key=path)):
            with pytest.raises(ConfigurationError, match=f"cannot read {path}: it is a device or a pipe"):
                tls.context()


# --- in the clear ------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("::1", marks=needs_ipv6)])
async def test_this_host_is_reached_without_tls(host: str) -> None:
    async with server(echo, host=host) as endpoint:
        assert await said_back(StreamAddress(endpoint)) == b"ping"


@pytest.mark.trio
@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1"])
async def test_another_host_is_refused_without_tls(host: str) -> None:
    with pytest.raises(ConfigurationError, match="not on this host") as caught:
        await open_stream(StreamAddress(Endpoint(host, 5555)), within=WITHIN)
    assert "--insecure" in caught.value.hint


class Resolver(trio.abc.HostnameResolver):
    """Has these addresses for every name, or none for that reason, after so many seconds."""

    def __init__(self, *hosts: str, wrong: OSError | None = None, after: float = 0.0) -> None:
        self._hosts, self._wrong, self._after = hosts, wrong, after

    async def getaddrinfo(self, host: object, port: object, *_: object) -> Any:
        await trio.sleep(self._after)
        if self._wrong is not None:
            raise self._wrong
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in self._hosts]

    async def getnameinfo(self, *_: object) -> Any:
        raise NotImplementedError


@pytest.mark.trio
@pytest.mark.parametrize(
    "wrong, error, hint",
    [
        (socket.gaierror(socket.EAI_NONAME, "not known"), ConfigurationError, "check the spelling"),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), UpstreamNotFound, "name server"),
        (OSError(24, "too many open files"), UpstreamNotFound, "name server"),
    ],
)
async def test_a_resolver_that_has_no_answer_now_is_told_from_a_name_that_is_none(
    wrong: OSError, error: type[OspBridgeError], hint: str
) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver(wrong=wrong))
    with pytest.raises(error, match=f"'trainer' does not resolve: {wrong.strerror}") as caught:
        await open_stream(parse_stream("trainer:5555"), within=WITHIN)
    assert hint in caught.value.hint


@pytest.mark.trio
async def test_a_name_that_is_not_resolved_in_time_is_not_waited_for(autojump_clock: object) -> None:
    trio.socket.set_custom_hostname_resolver(Resolver("127.0.0.1", after=1000))
    began = trio.current_time()
    with pytest.raises(UpstreamNotFound, match="trainer:5555: its name is not resolved in time"):
        await open_stream(parse_stream("trainer:5555"), within=10.0)
    assert trio.current_time() - began == pytest.approx(10.0)


@pytest.mark.loopback
@pytest.mark.trio
async def test_an_address_that_never_answers_keeps_nobody_from_the_next_one() -> None:
    trio.socket.set_custom_hostname_resolver(Resolver("127.0.0.2", "127.0.0.1"))
    async with server(echo) as endpoint:
        with (
            socket.create_server(("127.0.0.2", endpoint.port), backlog=0),
            socket.create_connection(("127.0.0.2", endpoint.port), 1),
        ):
            stream = await open_stream(parse_stream(f"trainer:{endpoint.port}"), within=1.0)
            assert isinstance(stream, trio.SocketStream)
            assert stream.socket.getpeername() == ("127.0.0.1", endpoint.port)
            await trio.aclose_forcefully(stream)


def test_the_addresses_of_a_name_share_the_time_to_connect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = []

    def nobody_answers(place: tuple[str, int], limit: float) -> socket.socket:
        waited.append((place, limit))
        raise TimeoutError

    hosts = [f"127.0.0.{n}" for n in (1, 2, 3)]
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 9)) for host in hosts]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    monkeypatch.setattr(socket, "create_connection", nobody_answers)
    address = TlsAddress(Endpoint("trainer", 9), Authority(tmp_path).issue("client"))
    with pytest.raises(TimeoutError):
        connect_tls(address, 6.0)
    assert waited == [((host, 9), 2.0) for host in hosts]


# --- with TLS ----------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize("ask", [False, True])
async def test_a_server_signed_by_the_pinned_ca_is_believed_and_gets_our_certificate_if_it_asks(
    ask: bool, authority: Authority
) -> None:
    mine = authority.issue("client") if ask else TlsFiles(ca=authority.path)
    async with server(tls_echo(authority.issue("server"), ask=ask)) as endpoint:
        assert await said_back(StreamAddress(endpoint, mine)) == b"ping"


@pytest.mark.loopback
@pytest.mark.trio
@pytest.mark.parametrize(
    "fault, why",
    [
        ("expired", "expired"),
        ("another host", "IP address mismatch"),
        ("another ca", "unable to get local issuer"),
        ("not the system's", "does not hold"),
    ],
)
async def test_a_certificate_that_does_not_hold_is_refused(tmp_path: Path, fault: str, why: str) -> None:
    authority = Authority(tmp_path)
    pinned = Authority(tmp_path, "other") if fault == "another ca" else authority
    host = "192.0.2.1" if fault == "another host" else "127.0.0.1"
    files = authority.issue("server", host=host, expired=fault == "expired")
    ca = None if fault == "not the system's" else pinned.path
    async with server(tls_echo(files, ask=False)) as endpoint:
        with pytest.raises(ConfigurationError, match=why) as caught:
            await said_back(StreamAddress(endpoint, TlsFiles(ca=ca)))
    assert str(endpoint.port) in caught.value.message
    assert is_tls_failure(caught.value)


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_server_without_tls_is_named_as_such(authority: Authority) -> None:
    async with server(echo) as endpoint:
        with pytest.raises((ConfigurationError, UpstreamLost), match="TLS"):
            await said_back(StreamAddress(endpoint, TlsFiles(ca=authority.path)))


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_server_that_says_nothing_in_the_handshake_ends_the_waiting() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep(WITHIN)

    async with server(silent) as endpoint:
        with pytest.raises(UpstreamNotFound, match="does not finish the TLS handshake"):
            await open_stream(StreamAddress(endpoint, TlsFiles()), within=0.1)


def test_files_that_do_not_fit_are_named(tmp_path: Path, authority: Authority) -> None:
    files = authority.issue("client")
    (tmp_path / "empty.pem").write_text("")
    unfit: list[tuple[TlsFiles, str]] = [
        (TlsFiles(ca=tmp_path / "missing.pem"), "cannot read"),
        (TlsFiles(ca=tmp_path / "empty.pem"), "has no CA certificates"),
        (TlsFiles(cert=files.cert), "only one of them"),
        (TlsFiles(cert=files.ca, key=files.key), "no certificate and its key"),
    ]
    for tls, why in unfit:
        with pytest.raises(ConfigurationError, match=why) as caught:
            tls.context()
        assert not is_tls_failure(caught.value)


# --- the end -----------------------------------------------------------------------------------------------------


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_gentle_end_lets_what_was_sent_arrive_and_resets_nothing() -> None:
    got = bytearray()
    ends: list[str] = []

    async def slow(stream: trio.SocketStream) -> None:
        try:
            await stream.send_all(b"x" * 100_000)
            while data := await stream.receive_some(10_000):
                got.extend(data)
                await trio.sleep(0.001)
            await stream.send_all(b"y" * 100_000)
            ends.append("eof")
        except trio.BrokenResourceError:
            ends.append("reset")
        await stream.aclose()

    async with server(slow) as endpoint:
        stream = await open_stream(StreamAddress(endpoint), within=WITHIN)
        await stream.send_all(b"z" * 50_000)
        await close_gently(stream, within=WITHIN)
        assert ends == ["eof"]
    assert got == b"z" * 50_000


@pytest.mark.loopback
@pytest.mark.trio
async def test_a_gentle_end_is_bounded_even_when_cancelled() -> None:
    async def silent(stream: trio.SocketStream) -> None:
        await trio.sleep(WITHIN)

    async with server(silent) as endpoint:
        stream = await open_stream(StreamAddress(endpoint), within=WITHIN)
        with trio.CancelScope() as scope:
            scope.cancel()
            await close_gently(stream, within=0.05)
        with pytest.raises(trio.ClosedResourceError):
            await stream.receive_some(1)


def talk(to: socket.socket) -> None:
    for _ in range(300):
        to.send(b"and")
        time.sleep(QUIET / 20)


@pytest.mark.loopback
def test_a_peer_that_never_stops_talking_is_left_when_the_time_is_over() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        with ours:
            trio.run(linger, ours.fileno(), 0.5)
        with pytest.raises(OSError, match=r"Broken pipe|reset"):  # nobody reads any more
            talk(theirs)
