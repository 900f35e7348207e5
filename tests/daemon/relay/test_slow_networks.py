"""Experience over a network that carries little, and over one that carries nothing any more."""

from __future__ import annotations

import socket
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import trio

from ospbridge.daemon.relay.link import Connection, Link
from ospbridge.errors import UpstreamLost
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.messages import Episodes, Pong, SetConfig
from ospbridge.rllink.server import EpisodesArrived, ServerMachine
from ospbridge.rllink.timing import Limits
from ospbridge.transport.stream_addresses import parse_stream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = [pytest.mark.loopback, pytest.mark.trio]
WITHIN = 30.0
STEPS = 40_000
"""Of some 80 bytes each."""


def long() -> EpisodeFragment:
    return EpisodeFragment(
        "long",
        np.zeros((STEPS + 1, 16), np.float32),
        np.zeros((STEPS, 4), np.float32),
        np.zeros(STEPS, np.float32),
    )


@asynccontextmanager
async def served(
    read: Callable[[trio.SocketStream, ServerMachine], Awaitable[None]], *, proof: float
) -> AsyncIterator[tuple[Connection, Link]]:
    """A connection to a server that reads as ``read`` does, once it was greeted."""
    sock = trio.socket.socket()
    # So that what was not read is not taken in advance either.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * 1024)
    await sock.bind(("127.0.0.1", 0))
    sock.listen(1)

    async def serve() -> None:
        stream = trio.SocketStream((await sock.accept())[0])
        machine = ServerMachine(SetConfig(env_steps_per_sample=20))
        async with stream:
            machine.receive(await stream.receive_some(1000))
            await stream.send_all(MSGPACK.encode(Pong()))
            await read(stream, machine)

    link = Link(
        parse_stream(f"127.0.0.1:{sock.getsockname()[1]}"), dialect=MSGPACK, limits=Limits(proof=proof)
    )
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            nursery.start_soon(link.run)
            yield await link.connection(), link
            nursery.cancel_scope.cancel()
    sock.close()


async def test_what_arrives_slower_than_the_limit_of_its_proof_arrives_all_the_same() -> None:
    proof, began, came = 1.0, 0.0, []

    async def slowly(stream: trio.SocketStream, machine: ServerMachine) -> None:
        nonlocal began
        machine.data_to_send()
        began = trio.current_time()
        while data := await stream.receive_some(60_000):
            machine.receive(data)
            while (event := machine.next_event()) is not None:
                if isinstance(event, EpisodesArrived):
                    came.append((event.steps, trio.current_time() - began))
            for part in machine.data_to_send():
                await stream.send_all(part)
            await trio.sleep(0.05)

    async with served(slowly, proof=proof) as (connection, _):
        await connection.perform(partial(deliver, messages=[Episodes((long(),))]))
    ((steps, seconds),) = came
    assert steps == STEPS
    assert seconds > 2 * proof


async def test_a_network_that_takes_nothing_more_is_told_with_what_it_took() -> None:
    async def never(stream: trio.SocketStream, _: ServerMachine) -> None:
        await trio.sleep_forever()

    async with served(never, proof=0.3) as (connection, link):
        with pytest.raises(UpstreamLost, match=r"took \d+ of \d{7} bytes, and nothing more for 0\.\d s"):
            await connection.perform(partial(deliver, messages=[Episodes((long(),))]))
        while not link.trouble:
            await trio.sleep(0.01)
        assert "and nothing more for" in link.trouble


async def test_who_answers_before_it_has_read_what_it_answers_is_not_waited_for_any_longer() -> None:
    async def too_soon(stream: trio.SocketStream, machine: ServerMachine) -> None:
        await stream.receive_some(1000)
        await stream.send_all(MSGPACK.encode(Pong()))
        # What leaves once the answer has come, does so without a question under way.
        await trio.sleep(0.1)
        for _ in range(20):
            await stream.receive_some(60_000)
        await trio.sleep_forever()

    async with served(too_soon, proof=0.3) as (connection, link):
        await connection.perform(partial(deliver, messages=[Episodes((long(),))]))
        await connection.gone.wait()
        while not link.trouble:
            await trio.sleep(0.01)
        assert "and nothing more for" in link.trouble
