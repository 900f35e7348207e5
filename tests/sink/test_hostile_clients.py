"""The sink under clients that no client of ours is like: whatever one of them does, the others are served."""

from __future__ import annotations

import socket
import ssl
import struct
import tracemalloc
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trio
from structlog.testing import capture_logs

from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.messages import EpisodeFragment, Episodes, EpisodesAndGetState
from ospbridge.sink import serving
from ospbridge.sink.policy_file import PolicyFile
from ospbridge.sink.serving import Sink
from ospbridge.sink.store import Store
from ospbridge.transport.tls import parse_stream
from tests.daemon.certificates import Authority
from tests.sink.clients import (
    PING,
    WITHIN,
    episodes,
    fragment,
    heard_until_dismissed,
    linked,
    recorded,
    said,
    save,
    sink,
)

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


"""What can be said, but not recorded."""


# --- what they send ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "actions, why",
    [
        ([0.5, 0.25], "a row of numbers for each action"),
        ([-5, -5], "actions that no recording can hold"),
        ([[0, 1], [1, 0]], "actions that no recording can hold"),
    ],
    ids=str,
)
async def test_actions_of_an_odd_form_end_their_client_with_the_reason_and_no_other(
    tmp_path: Path, actions: list[Any], why: str
) -> None:
    async with sink(Store(tmp_path / "in")) as address, linked(address) as other:
        with capture_logs() as logs:
            await heard_until_dismissed(address.endpoint.port, said(PING, episodes(actions)))
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
        (told,) = [line for line in logs if line["event"] == "a client is dismissed"]
        assert why in told["reason"]
        assert told["hint"]
    assert recorded(tmp_path / "in") == [(5, 5.0, "terminated")]


async def test_a_fault_of_the_sinks_own_ends_its_client_only_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "in")
    add = store.add

    def faulty(fragments: tuple[EpisodeFragment, ...], *, client: str) -> list[EpisodeFragment]:
        if any(each.id == "unlucky" for each in fragments):
            raise ZeroDivisionError("nobody thought of it")
        return add(fragments, client=client)

    monkeypatch.setattr(store, "add", faulty)
    async with sink(store) as address, linked(address) as other:
        with capture_logs() as logs:
            await heard_until_dismissed(address.endpoint.port, said(PING, episodes([0, 1], id_="unlucky")))
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
        (told,) = [line for line in logs if line["event"] == "a client is dismissed"]
        assert told["reason"] == "ZeroDivisionError: nobody thought of it"
        assert told["log_level"] == "error"
    assert recorded(tmp_path / "in") == [(5, 5.0, "terminated")]


async def test_who_asks_for_weights_many_times_at_once_is_sent_them_one_by_one(
    tmp_path: Path,
) -> None:
    size, times = 1_000_000, 30
    save(tmp_path / "policy.npz", np.ones((size // 4, 1), np.float32))
    async with sink(policy=PolicyFile(tmp_path / "policy.npz")) as address:
        stream = await trio.open_tcp_stream("127.0.0.1", address.endpoint.port)
        tracemalloc.start()
        try:
            async with stream:
                with trio.fail_after(WITHIN):
                    await stream.send_all(MSGPACK.encode(EpisodesAndGetState((fragment("a", 1),))) * times)
                    heard = 0
                    while heard < size * times:
                        heard += len(await stream.receive_some(1_000_000))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert most < 10 * size


# --- when they say it --------------------------------------------------------------------------------------------


async def test_who_never_finishes_its_first_message_is_dismissed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GREET_WITHIN", 0.3)
    async with sink() as address:
        with capture_logs() as logs:
            stream = await trio.open_tcp_stream("127.0.0.1", address.endpoint.port)
            async with stream:
                heard = b"none"
                try:
                    with trio.fail_after(WITHIN):
                        for byte in said(PING)[:-1]:
                            await stream.send_all(bytes([byte]))
                            with trio.move_on_after(0.05):
                                heard = await stream.receive_some(1000)
                                break
                        else:
                            heard = await stream.receive_some(1000)
                except trio.BrokenResourceError:
                    # A byte that nobody read any more makes a reset of the connection's end.
                    heard = b""
                assert heard == b""
    (told,) = [line for line in logs if line["event"] == "a client is dismissed"]
    assert "it said nothing" in told["reason"]


# --- how they go -------------------------------------------------------------------------------------------------


async def test_who_has_reset_its_connection_before_it_was_heard_ends_no_other() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    host, port = listener.socket.getsockname()[:2]
    for _ in range(5):
        with socket.create_connection((host, port), WITHIN) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    served = Sink(None, None, env_steps=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(served.serve, [listener], None)
        async with linked(parse_stream(f"{host}:{port}")) as other:
            await other.perform(partial(deliver, messages=[Episodes((fragment("a"),))]))
            assert (served.clients, served.fragments) == (1, 1)
        nursery.cancel_scope.cancel()


async def test_a_client_whose_host_vanished_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing on one host vanishes without a word; what the kernel is told to do about it can be seen."""
    accept = trio.SocketListener.accept
    taken: list[trio.SocketStream] = []

    async def watched(listener: trio.SocketListener) -> trio.SocketStream:
        taken.append(await accept(listener))
        return taken[-1]

    monkeypatch.setattr(trio.SocketListener, "accept", watched)
    async with sink() as address, linked(address):
        (stream,) = taken
        assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, every, probes = (int(stream.getsockopt(socket.IPPROTO_TCP, each)) for each in options)
        assert idle + every * probes <= 60


# --- clients with which TLS comes to nothing -----------------------------------------------------------------------


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

    def comes(port: int) -> None:
        with (
            suppress(ssl.SSLError, OSError),
            socket.create_connection(("127.0.0.1", port), WITHIN) as sock,
            context.wrap_socket(sock, server_hostname="127.0.0.1") as secured,
        ):
            secured.sendall(said(PING))
            while secured.recv(1000):
                pass

    with capture_logs() as logs:
        async with sink(tls=authority.issue("server").context(server=True)) as address:
            with trio.fail_after(WITHIN):
                await trio.to_thread.run_sync(comes, address.endpoint.port)
                while not logs:
                    await trio.sleep(0.01)
    (told,) = logs
    assert (told["event"], told["log_level"]) == ("a client is dismissed", "warning")
    assert reason in told["reason"]


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
