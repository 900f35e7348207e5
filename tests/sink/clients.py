"""A sink in this process, clients of ours, and what others may say to it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import trio

from ospbridge.daemon.relay.link import Connection, Link
from ospbridge.record.reading import read_recording
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import Dialect
from ospbridge.rllink.exchanges import deliver
from ospbridge.rllink.framing import header
from ospbridge.rllink.messages import EpisodeFragment, Episodes
from ospbridge.sink.policy_file import PolicyFile
from ospbridge.sink.serving import Sink
from ospbridge.sink.store import Store
from ospbridge.transport.tls import StreamAddress, parse_stream

WITHIN = 30.0


def fragment(
    name: str, steps: int = 5, *, t_started: int = 0, done: bool = True, box: bool = False
) -> EpisodeFragment:
    at = np.arange(t_started, t_started + steps)
    return EpisodeFragment(
        name,
        np.stack([np.arange(t_started, t_started + steps + 1), np.zeros(steps + 1)], axis=1),
        at[:, None] / 8.0 if box else at % 3,
        np.ones(steps, np.float32),
        terminated=done,
        action_dist_inputs=np.zeros((steps, 3), np.float32),
        action_logp=np.full(steps, -1.0, np.float32),
        t_started=t_started,
    )


@asynccontextmanager
async def sink(
    store: Store | None = None, policy: PolicyFile | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[StreamAddress]:
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Sink(store, policy, env_steps=100).serve, listeners, tls)
        yield parse_stream(f"127.0.0.1:{port}")
        nursery.cancel_scope.cancel()
    if store is not None:
        store.close()


@asynccontextmanager
async def linked(address: StreamAddress, dialect: Dialect | None = None) -> AsyncIterator[Connection]:
    link = Link(address, dialect=dialect, limits=Limits(pong=5.0))
    with trio.fail_after(WITHIN):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(link.run)
            yield await link.connection()
            nursery.cancel_scope.cancel()


async def sent(connection: Connection, *fragments: EpisodeFragment) -> None:
    await connection.perform(partial(deliver, messages=[Episodes(fragments)]))


def recorded(directory: Path) -> list[tuple[int, float, str]]:
    return [(len(episode), episode.rewards.sum(), episode.how) for episode in read_recording(directory)]


def save(path: Path, weights: Any) -> None:
    arrays: dict[str, Any] = {"pi.net.mlp.0.weight": weights}
    np.savez(path, **arrays)


# --- others, in the dialect json -----------------------------------------------------------------------------------

PING = {"type": "PING"}


def said(*messages: dict[str, Any]) -> bytes:
    """In the dialect json."""
    bodies = [orjson.dumps(message) for message in messages]
    return b"".join(header(len(body)) + body for body in bodies)


def episodes(actions: list[Any], **more: Any) -> dict[str, Any]:
    """A message with one episode of as many steps."""
    steps = len(actions)
    one = {
        "obs": [[float(at)] for at in range(steps + 1)],
        "actions": actions,
        "rewards": [1.0] * steps,
        "is_terminated": True,
        "is_truncated": False,
    }
    return {"type": "EPISODES", "episodes": [one | more]}


async def heard_until_dismissed(port: int, data: bytes) -> bytes:
    """Send, and read until the sink closes the connection."""
    heard = b""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        with trio.fail_after(WITHIN):
            await stream.send_all(data)
            while received := await stream.receive_some(1000):
                heard += received
    return heard
