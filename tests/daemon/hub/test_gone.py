"""What is left of a connection whose client is gone: nothing, and not only once Python looks for circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.daemon.hub.connection import HubConnection
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.requests import Attach, Hello
from tests.daemon.hubs import Line, acting, in_thread, left, serving
from tests.kept import uncollected

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


def plays(path: Path) -> Line:
    line = Line.playing(path, "agent1")
    line.ask(*acting(0.5))
    return line


def greets(path: Path) -> Line:
    line = Line(path)
    line.ask(Hello(VERSION, "line"))
    return line


def breaks_off(path: Path) -> Line:
    line = greets(path)
    line.say_bytes(line.frame(Attach(["agent1"]))[:-3])
    return line


def speaks_another_version(path: Path) -> Line:
    line = Line(path)
    line.ask(Hello(VERSION + 1, "line"))
    return line


def talks_nonsense(path: Path) -> Line:
    line = greets(path)
    line.say_bytes(b"\x02\x00\x00\x00\xc1\xc1")
    line.hear()
    return line


async def test_whoever_is_gone_is_freed_with_its_buffers(document: UdpSimulator, tmp_path: Path) -> None:
    path = tmp_path / "hub"
    with uncollected(HubConnection) as connections:
        async with serving(document, path) as conductor:
            for client in (greets, plays, breaks_off, speaks_another_version, talks_nonsense):
                line = await in_thread(client, path)
                line.close()
                await left(conductor)
            # Within the time of ``serving``.
            while connections():
                await trio.sleep(0.05)
