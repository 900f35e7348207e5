"""Networks slower than the limit of a proof: as long as something leaves, nothing is given up. Time is virtual."""

from __future__ import annotations

import errno
import os
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import trio

from ospbridge.daemon.relay.link import Connection
from ospbridge.errors import UpstreamLost
from ospbridge.rllink.client import ClientMachine
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.rllink.exchanges import deliver, greet
from ospbridge.rllink.fragments import EpisodeFragment
from ospbridge.rllink.messages import Episodes, Pong
from ospbridge.rllink.timing import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from trio.testing import MockClock

pytestmark = pytest.mark.trio
STEPS = 10_000
"""Of some 100 bytes each."""
LONG = EpisodeFragment(
    "long",
    np.zeros((STEPS + 1, 16), np.float32),
    np.zeros((STEPS, 4), np.float32),
    np.zeros(STEPS, np.float32),
)
EXPERIENCE = [Episodes((LONG,))]
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


@asynccontextmanager
async def over(network: Any, *, proof: float) -> AsyncIterator[Connection]:
    connection = Connection(network, ClientMachine(MSGPACK, limits=Limits(proof=proof)), lambda _: None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.read)
        await connection.perform(greet)
        yield connection
        nursery.cancel_scope.cancel()


async def test_what_arrives_slower_than_the_limit_of_its_proof_arrives_all_the_same(
    autojump_clock: MockClock,
) -> None:
    network, began = Network(0.9), trio.current_time()
    async with over(network, proof=1.0) as connection:
        await connection.perform(partial(deliver, messages=EXPERIENCE))
    assert len(network.heard) > 80 * STEPS
    assert trio.current_time() - began > 5.0


async def test_a_network_that_takes_nothing_more_is_told_with_what_it_took(autojump_clock: MockClock) -> None:
    async with over(Network(0.1, most=100_000), proof=0.5) as connection:
        with pytest.raises(UpstreamLost, match=r"took 131072 of \d{6} bytes, and nothing more for 0\.5 s"):
            await connection.perform(partial(deliver, messages=EXPERIENCE))
        assert connection.gone.is_set()


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
        (errno.ECONNRESET, "far:5555 closed the connection"),
    ],
)
async def test_a_network_that_is_gone_is_no_server_that_closed_the_connection(number: int, told: str) -> None:
    machine = ClientMachine(MSGPACK, limits=Limits(), peer="far:5555")
    stream: Any = Broken(number)
    await Connection(stream, machine, lambda _: None).read()
    assert machine.lost is not None
    assert machine.lost.message == told
