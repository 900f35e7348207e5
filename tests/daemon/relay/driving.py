"""Drivers in this process: agents of a world in memory, and relays that act for a learner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.relay.link import Mode, Upstream
from ospbridge.daemon.relay.relay import Relay
from ospbridge.errors import SessionLost
from ospbridge.rllink.connecting import Limits
from ospbridge.rllink.dialects import MSGPACK
from ospbridge.transport.tls import parse_stream
from tests.daemon.stage import FakeSession, conductor_of

WITHIN = 30.0


def upstream(port: int, **changes: Any) -> Upstream:
    said: dict[str, Any] = {
        "address": parse_stream(f"127.0.0.1:{port}"),
        "mode": Mode.DRIVE,
        "dialect": MSGPACK,
        "env_steps": 20,
        "activation": "tanh",
        "limits": Limits(pong=5.0, state=5.0),
    }
    return Upstream(**(said | changes))


def world(*names: str, length: int = 7) -> tuple[FakeSession, Conductor]:
    """Episodes of ``length`` steps."""
    session = FakeSession(*(names or ("a",)))
    session.ending = dict.fromkeys(session.names, length)
    return session, conductor_of(session)


@asynccontextmanager
async def relayed(to: Upstream, *conductors: Conductor) -> AsyncIterator[Relay]:
    with trio.fail_after(WITHIN), Relay(to, conductors) as relay:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(relay.run)
            yield relay
            nursery.cancel_scope.cancel()
        for conductor in conductors:
            conductor.tracker.close()


def away(relay: Relay) -> None:
    """Its upstream is lost, and nowhere to be found."""
    relay.link.address = parse_stream("127.0.0.1:1")
    if relay.link.connected is not None:
        relay.link.drop(relay.link.connected, SessionLost("for a test"))


def back(relay: Relay, port: int) -> None:
    """It can be found again."""
    relay.link.address = parse_stream(f"127.0.0.1:{port}")


async def until(condition: Callable[[], object]) -> None:
    with trio.fail_after(WITHIN):
        while not condition():
            await trio.sleep(0.005)
