"""What is left of a connection whose client is gone: nothing, and not only once Python looks for circles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio

from ospbridge.daemon.hub.connection import HubConnection
from ospbridge.hub.decoding import VERSION
from ospbridge.hub.requests import Attach, Hello, Reset, Step
from tests.daemon.hubs import Line, serving
from tests.kept import uncollected

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator

pytestmark = [pytest.mark.loopback, pytest.mark.trio]


def greets(line: Line) -> None:
    line.ask(Hello(VERSION, "line"))


def plays(line: Line) -> None:
    greets(line)
    line.ask(Attach(["agent1"]))
    line.ask(Reset([], 5))
    line.ask(Step([("agent1", bytes(8))]))
    line.ask(Step([("agent1", bytes(8))]))


def breaks_off(line: Line) -> None:
    greets(line)
    line.say_bytes(line.frame(Attach(["agent1"]))[:-3])


def speaks_another_version(line: Line) -> None:
    line.ask(Hello(VERSION + 1, "line"))


def talks_nonsense(line: Line) -> None:
    greets(line)
    line.say_bytes(b"\x02\x00\x00\x00\xc1\xc1")
    line.hear()


@pytest.mark.parametrize("client", [greets, plays, breaks_off, speaks_another_version, talks_nonsense])
async def test_whoever_is_gone_is_freed_with_its_buffers(
    document: UdpSimulator, tmp_path: Path, client: Callable[[Line], None]
) -> None:
    path = tmp_path / "hub"

    def come_and_go() -> None:
        line = Line(path)
        client(line)
        line.close()

    with uncollected(HubConnection) as connections:
        async with serving(document, path):
            await trio.to_thread.run_sync(come_and_go)
            # Within the time of ``serving``.
            while connections():
                await trio.sleep(0.01)
