"""Probing: what a server speaks is found out, whoever it is, and it serves on afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from ospbridge.daemon.relay import probing
from ospbridge.daemon.relay.probing import Finding, probe
from ospbridge.errors import ConfigurationError, OspBridgeError, RemoteProtocolError, UpstreamNotFound
from ospbridge.rllink.dialects import JSON, MSGPACK, Dialect
from ospbridge.rllink.messages import ModuleWeights, SetConfig
from ospbridge.transport.tls import StreamAddress, TlsFiles, parse_stream
from tests.daemon.certificates import Authority
from tests.daemon.relay.driving import WITHIN
from tests.daemon.relay.observing import Server, listening, showing
from tests.policy.weights import module_weights

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
Handler = Callable[[trio.SocketStream], Awaitable[None]]
BOTH = pytest.mark.parametrize("dialect", [JSON, MSGPACK], ids=lambda dialect: dialect.name)
CONFIG = SetConfig(env_steps_per_sample=10, force_on_policy=True)


def told(**how: Any) -> Server:
    server = Server(**how)
    server.config, server.weights = CONFIG, ModuleWeights(module_weights(5, (8, 6), 3), 7)
    return server


async def found(address: StreamAddress, dialect: Dialect | None = None) -> Finding:
    with trio.fail_after(WITHIN):
        return await probe(address, dialect=dialect, within=10.0)


async def refusal(
    address: StreamAddress, error: type[OspBridgeError] = UpstreamNotFound, within: float = 0.6
) -> str:
    """Message and hint."""
    with trio.fail_after(WITHIN), pytest.raises(error) as caught:
        await probe(address, within=within)
    return f"{caught.value.message}\n{caught.value.hint}"


def at(port: int, scheme: str = "", **tls: Any) -> StreamAddress:
    return parse_stream(f"{scheme}127.0.0.1:{port}", **tls)


@BOTH
async def test_settings_and_weights_are_told_in_either_dialect_and_the_server_is_left_in_peace(
    dialect: Dialect,
) -> None:
    server = told()
    async with listening(server.serve) as port:
        finding = await found(at(port), dialect)
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
    server = told(dialect=dialect)
    async with listening(server.serve) as port:
        finding = await found(at(port))
        assert finding.dialect is dialect
        assert server.ends == ["dismissed"] * (dialect is JSON) + ["closed"]


async def closed_port() -> int:
    async with listening(told().serve) as port:
        return port


async def test_where_nobody_listens_it_is_over_once_no_pause_of_a_server_explains_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probing, "PAUSE_IS_OVER", 0.1)
    said = await refusal(at(await closed_port()), within=WITHIN)
    assert "Connection refused" in said
    assert "ospbridge sink" in said


async def test_a_server_that_comes_back_from_its_pause_is_found() -> None:
    port = await closed_port()

    async def comes_back(task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(0.2)
        async with listening(told().serve, port):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(comes_back)
        assert (await found(at(port))).config == CONFIG
        nursery.cancel_scope.cancel()


async def answers(stream: trio.SocketStream, answer: bytes) -> None:
    await stream.receive_some(100)
    if answer:
        await stream.send_all(answer)
    await stream.aclose()


async def says_nothing(stream: trio.SocketStream) -> None:
    await trio.sleep_forever()


@pytest.mark.parametrize("handler", [says_nothing, partial(answers, answer=b"")], ids=["silent", "hangs up"])
async def test_a_server_that_answers_no_ping_may_have_another_client(
    handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "LOOK_FOR_TLS", 0.1)
    async with listening(handler) as port:
        assert "it serves another client" in await refusal(at(port))


async def test_a_web_server_is_told_at_once() -> None:
    web = partial(answers, answer=b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    async with listening(web) as port:
        assert "a web server answers there" in await refusal(at(port), RemoteProtocolError, WITHIN)


# --- TLS ---------------------------------------------------------------------------------------------------------


async def test_a_server_is_believed_by_its_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    async with listening(told(tls=showing(authority.issue("server"))).serve) as port:
        assert (await found(at(port, "tls://", tls=TlsFiles(ca=authority.path)))).config == CONFIG
        said = await refusal(at(port, "tls://", tls=TlsFiles(ca=other.path)), ConfigurationError, WITHIN)
    assert "does not hold" in said


async def test_a_server_that_speaks_tls_and_is_asked_without_is_told(tmp_path: Path) -> None:
    async with listening(told(tls=showing(Authority(tmp_path).issue("server"))).serve) as port:
        said = await refusal(at(port))
    assert "speaks TLS" in said
    assert f"write tls://127.0.0.1:{port}" in said


async def test_a_server_without_tls_that_is_asked_with_it_is_told() -> None:
    async with listening(told().serve) as port:
        assert "leave out tls://" in await refusal(at(port, "tls://"))
