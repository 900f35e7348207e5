"""The sink and clients with which TLS comes to nothing: whose certificate is refused, or who refuses the sink's."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.sink import serving
from tests.daemon.certificates import Authority
from tests.sink.clients import WITHIN, sink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ospbridge.transport.tls import TlsFiles

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


def greets(sock: socket.socket) -> None:
    """Say something, and hear what comes of it."""
    with suppress(OSError):
        sock.sendall(b'00000016{"type": "PING"}')
        while sock.recv(1000):
            pass


def shakes_hands(context: ssl.SSLContext) -> Callable[[socket.socket], None]:
    def begins(sock: socket.socket) -> None:
        with (
            suppress(ssl.SSLError, OSError),
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            greets(secured)

    return begins


async def told_of(files: TlsFiles, client: Callable[[socket.socket], None]) -> dict[str, Any]:
    """The last line of a sink's log, after a client that did as ``client`` does with its connection."""

    def comes(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), WITHIN) as sock:
            client(sock)

    with capture_logs() as logs:
        async with sink(tls=files.context(server=True)) as address:
            with trio.fail_after(WITHIN):
                await trio.to_thread.run_sync(comes, address.endpoint.port)
                while not logs:
                    await trio.sleep(0.01)
    (told,) = logs
    return dict(told)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=str)
@pytest.mark.parametrize(
    "shows, trusts, reason",
    [
        ("another's", "this", "the certificate of the client does not hold"),
        ("none", "this", "peer did not return a certificate"),
        ("this", "another's", "the client refuses the TLS connection: tlsv1 alert unknown ca"),
    ],
)
async def test_who_refuses_whose_certificate_is_told(
    tmp_path: Path, shows: str, trusts: str, reason: str, *, version: ssl.TLSVersion
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    if shows == "none":
        context = ssl.create_default_context(cafile=authority.path)
    else:
        issuer = authority if shows == "this" else other
        trusted = authority if trusts == "this" else other
        context = issuer.issue("client", trusts=trusted).context(server=False)
    context.maximum_version = version
    told = await told_of(authority.issue("server"), shakes_hands(context))
    assert (told["event"], told["log_level"]) == ("a client is dismissed", "warning")
    assert reason in told["reason"]


async def test_a_client_that_speaks_no_tls_is_told_what_to_do(tmp_path: Path) -> None:
    told = await told_of(Authority(tmp_path).issue("server"), greets)
    assert (told["event"], told["log_level"]) == ("a client is dismissed", "warning")
    assert "the client does not speak TLS as the sink does" in told["reason"]
    assert "tls://" in told["hint"]


async def test_who_ends_the_handshake_without_a_word_was_lost_and_nothing_worse(tmp_path: Path) -> None:
    told = await told_of(Authority(tmp_path).issue("server"), lambda _: None)
    assert (told["event"], told["log_level"]) == ("a client was lost", "info")
    assert "in the TLS handshake" in told["reason"]


async def test_a_host_that_shows_no_certificates_again_and_again_keeps_no_other_host_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_CLIENTS", 2)
    authority = Authority(tmp_path)
    context = authority.issue("client").context(server=False)
    heard = []

    def comes(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port), WITHIN) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(b'00000016{"type": "PING"}')
            heard.append(secured.recv(8))

    async with sink(tls=authority.issue("server").context(server=True)) as address:
        port = address.endpoint.port
        silent = [await trio.open_tcp_stream("127.0.0.1", port, local_address="127.0.0.2") for _ in range(2)]
        with trio.fail_after(WITHIN):
            await trio.to_thread.run_sync(comes, port)
            # Who waited longest has given way.
            assert await silent[0].receive_some(1) == b""
        for each in silent:
            await each.aclose()
    assert heard == [b"00000016"]
