"""Probing: what a server speaks is found out, whoever it is, and it serves on afterwards."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ospbridge.daemon.relay import probing
from ospbridge.daemon.relay.probing import Finding, probe
from ospbridge.errors import ConfigurationError, RemoteProtocolError, UpstreamNotFound
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import SetConfig
from ospbridge.rllink.weights import ModuleWeights, Weights
from ospbridge.transport.tls import StreamAddress, TlsFiles, parse_stream
from tests.daemon.certificates import Authority
from tests.daemon.relay.driving import WITHIN
from tests.daemon.relay.observing import Server, listening, showing
from tests.policy.weights import module_weights

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    Handler = Callable[[trio.SocketStream], Awaitable[None]]

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
BOTH = pytest.mark.parametrize("dialect", [JSON, MSGPACK], ids=lambda dialect: dialect.name)


@asynccontextmanager
async def serving(handler: Handler, *, port: int = 0) -> AsyncIterator[StreamAddress]:
    async with listening(handler, port) as number:
        yield parse_stream(f"127.0.0.1:{number}")


def told(config: SetConfig, weights: Weights | None = None, **how: Any) -> Server:
    server = Server(**how)
    server.config, server.weights = config, weights
    return server


async def found(address: StreamAddress, dialect: Dialect | None = None, *, read: bool = False) -> Finding:
    with trio.fail_after(WITHIN):
        return await probe(address, dialect=dialect, within=10.0, read_pickle=read)


async def refusal(address: StreamAddress, *, within: float = 0.6) -> Exception:
    with (
        trio.fail_after(WITHIN),
        pytest.raises((UpstreamNotFound, RemoteProtocolError, ConfigurationError)) as caught,
    ):
        await probe(address, within=within)
    return caught.value


CONFIG = SetConfig(env_steps_per_sample=10, force_on_policy=True)
WEIGHTS = ModuleWeights(module_weights(5, (8, 6), 3), 7)


# --- what is found -----------------------------------------------------------------------------------------------


@BOTH
async def test_settings_and_weights_are_told_in_either_dialect_and_the_server_is_left_in_peace(
    dialect: Dialect,
) -> None:
    server = told(CONFIG, WEIGHTS)
    async with serving(server.serve) as address:
        finding = await found(address, dialect)
        assert server.ends == ["closed"]
    assert (finding.dialect, finding.config, finding.weights_seq_no) == (dialect, CONFIG, 7)
    assert finding.pong is not None
    assert finding.pong > 0
    assert finding.policy is not None
    assert (finding.policy.observation, finding.policy.layers) == (5, (8, 6, 3))
    assert finding.policy.actions == ("one of 3 choices",)
    assert finding.troubles == ()


@BOTH
async def test_the_dialect_of_a_server_that_speaks_one_only_is_found_out(dialect: Dialect) -> None:
    server = told(CONFIG, WEIGHTS, dialect=dialect)
    async with serving(server.serve) as address:
        finding = await found(address)
        assert finding.dialect is dialect
        assert server.ends == ["dismissed"] * (dialect is JSON) + ["closed"]


# --- who is not there --------------------------------------------------------------------------------------------


async def free_port() -> int:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port: int = listener.socket.getsockname()[1]
    await listener.aclose()
    return port


async def test_where_nobody_listens_it_is_over_once_no_pause_of_a_server_explains_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "PAUSE_IS_OVER", 0.1)
    error = await refusal(parse_stream(f"127.0.0.1:{await free_port()}"), within=WITHIN)
    assert isinstance(error, UpstreamNotFound)
    assert "Connection refused" in error.message
    assert "ospbridge sink" in error.hint


async def test_a_server_that_comes_back_from_its_pause_is_found() -> None:
    port = await free_port()
    results: list[Finding] = []

    async def look() -> None:
        results.append(await found(parse_stream(f"127.0.0.1:{port}")))

    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)
            await trio.sleep(0.2)
            async with serving(told(CONFIG, WEIGHTS).serve, port=port):
                while not results:
                    await trio.sleep(0.01)
    assert results[0].config == CONFIG


async def says_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


async def hangs_up(stream: trio.SocketStream) -> None:
    await stream.receive_some(100)
    await stream.aclose()


@pytest.mark.parametrize("handler", [says_nothing, hangs_up])
async def test_a_server_that_answers_no_ping_may_have_another_client(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "LOOK_FOR_TLS", 0.1)
    async with serving(handler) as address:
        error = await refusal(address)
    assert isinstance(error, UpstreamNotFound)
    assert "it serves another client" in error.hint


async def test_a_web_server_is_told_at_once() -> None:
    async def web(stream: trio.SocketStream) -> None:
        await stream.receive_some(100)
        await stream.send_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await stream.aclose()

    async with serving(web) as address:
        error = await refusal(address, within=WITHIN)
    assert isinstance(error, RemoteProtocolError)
    assert "a web server answers there" in error.hint


# --- TLS ---------------------------------------------------------------------------------------------------------


async def test_a_server_is_believed_by_its_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server = told(CONFIG, WEIGHTS, tls=showing(authority.issue("server")))
    async with serving(server.serve) as address:
        secured = parse_stream(f"tls://{address}", tls=TlsFiles(ca=authority.path))
        assert (await found(secured)).config == CONFIG
        error = await refusal(parse_stream(f"tls://{address}", tls=TlsFiles(ca=other.path)), within=WITHIN)
    assert isinstance(error, ConfigurationError)
    assert "does not hold" in error.message


async def test_a_server_that_speaks_tls_and_is_asked_without_is_told(tmp_path: Path) -> None:
    server = told(CONFIG, WEIGHTS, tls=showing(Authority(tmp_path).issue("server")))
    async with serving(server.serve) as address:
        error = await refusal(address)
    assert isinstance(error, UpstreamNotFound)
    assert "speaks TLS" in error.message
    assert f"write tls://{address}" in error.hint


async def test_a_server_without_tls_that_is_asked_with_it_is_told() -> None:
    async with serving(told(CONFIG, WEIGHTS).serve) as address:
        error = await refusal(parse_stream(f"tls://{address}"))
    assert isinstance(error, UpstreamNotFound)
    assert "leave out tls://" in error.hint
