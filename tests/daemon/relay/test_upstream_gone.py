"""An upstream that is gone: nothing is left of its connection, not even for Python to find, and why is told."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ospbridge.daemon.relay.link import Connection, Link
from ospbridge.errors import OspBridgeError
from ospbridge.rllink.client import ClientMachine
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.exchanges import get_state
from ospbridge.rllink.framing import header
from ospbridge.rllink.messages import Pong
from ospbridge.rllink.timing import Limits
from ospbridge.transport.stream_addresses import parse_stream
from tests.kept import uncollected

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
WITHIN = 20.0


async def says_what_is_no_rllink(stream: trio.SocketStream) -> None:
    await stream.send_all(b"nonsense")


async def answers_what_is_none(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(header(5) + b"12345")


async def breaks_off(stream: trio.SocketStream) -> None:
    await stream.receive_some()
    await stream.send_all(header(5) + b"123")


async def hangs_up(stream: trio.SocketStream) -> None:
    await stream.receive_some()


@pytest.mark.parametrize(
    "upstream, asked",
    [(says_what_is_no_rllink, False), (answers_what_is_none, True), (breaks_off, True), (hangs_up, True)],
)
async def test_a_connection_that_is_lost_is_freed(
    upstream: Callable[[trio.SocketStream], Awaitable[None]], asked: bool
) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]

    async def serve() -> None:
        # Once only: whoever comes again finds nobody.
        async with await listener.accept() as stream, listener:
            await stream.receive_some()
            await stream.send_all(MSGPACK.encode(Pong()))
            await upstream(stream)

    async def ask() -> None:
        with suppress(OspBridgeError):
            await (await link.connection()).perform(get_state)

    link = Link(parse_stream(f"127.0.0.1:{port}"), dialect=MSGPACK, limits=Limits())
    with uncollected(ClientMachine) as machines, trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            nursery.start_soon(link.run)
            if asked:
                await ask()
            while not link.connections or machines():
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
    assert link.connections == 1
    assert link.error is not None


class Broken:
    """A stream of which the kernel says this."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def receive_some(self, _: int) -> bytes:
        await trio.lowlevel.checkpoint()
        raise trio.BrokenResourceError from OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize(
    "number, told",
    [
        (errno.ETIMEDOUT, "nothing reaches far:5555 any more: Connection timed out"),
        (errno.EHOSTUNREACH, "nothing reaches far:5555 any more: No route to host"),
        (errno.ECONNRESET, "far:5555 closed the connection"),
    ],
)
async def test_a_network_that_is_gone_is_no_server_that_closed_the_connection(number: int, told: str) -> None:
    machine = ClientMachine(MSGPACK, limits=Limits(), peer="far:5555")
    stream: Any = Broken(number)
    await Connection(stream, machine, lambda _: None).read()
    assert machine.lost is not None
    assert machine.lost.message == told
