"""Servers that tests of sessions need beside the built-in simulator, and what dead sessions left."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from ospbridge.interface import Endpoint
from ospbridge.observe.runtime import runtime_directory
from ospbridge.osp.profile import Profile
from ospbridge.osp.server import ServerMachine
from ospbridge.osp.world import World
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.lease import Lease, LeaseFile
from ospbridge.simulator.udp import MAIN, WAKE, UdpSimulator

SETTLES: Final = 0.1
"""Seconds that simulators of these tests need behind a restart, so that nobody waits for long."""


class OneAtATime(UdpSimulator):
    """Hosts ``world`` for one client after the other, as a server with a single loop does.

    While it has a client it does not look at its main port, where INITs wait their turn. A client that dies is waited
    for, for ever.
    """

    def __init__(self, world: World, profile: Profile) -> None:
        super().__init__(world, port=0, profile=profile)
        self.waiting: list[tuple[bytes, Any]] = []
        """What came to the main port and was not looked at yet."""
        machine: Any = self.machine
        machine.receive_main = lambda data, peer, _: self.waiting.append((data, peer))

    def _carry_out(self, now: float) -> None:
        super()._carry_out(now)
        while self.waiting and self._sockets.keys() == {MAIN, WAKE}:
            ServerMachine.receive_main(self.machine, *self.waiting.pop(0), now)
            super()._carry_out(now)


def bound(host: str = "127.0.0.1") -> socket.socket:
    """A port that belongs to a program which says nothing."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((host, 0))
    return sock


class Instead:
    """A socket that does something of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


def closed_port() -> int:
    with bound() as sock:
        return int(sock.getsockname()[1])


@contextmanager
def silent_server(*, dead: int) -> Iterator[Endpoint]:
    """Neither its main port nor the handlers of so many dead sessions of ours answer anything."""
    with ExitStack() as stack:
        main, *handlers = (stack.enter_context(bound()).getsockname()[1] for _ in range(1 + dead))
        address = Endpoint("127.0.0.1", main)
        for handler_port in handlers:
            left_behind(address, handler_port=handler_port)
        yield address


def lease_of(server: Endpoint, *, local_port: int = 0, handler_port: int = 9) -> Lease:
    return Lease(
        server=server.host,
        server_port=server.port,
        local_host="127.0.0.1",
        local_port=local_port or closed_port(),
        handler_port=handler_port,
        profile="document",
        agents={"agent": 1},
        events=False,
        pid=1,
    )


def left_behind(server: Endpoint, directory: Path | None = None, **ports: int) -> None:
    """A session that had an agent has died."""
    file = LeaseFile(directory)
    file.write(lease_of(server, **ports))
    file.abandon()


def leases() -> list[Path]:
    """Files of them."""
    return list((runtime_directory() / "leases").glob("*.lease"))


def content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def changed(file: Path, **fields: Any) -> None:
    file.write_text(json.dumps(content(file) | fields))


def wait_for(condition: Callable[[], object]) -> None:
    """What another thread or process brings about."""
    give_up = monotonic() + 30
    while not condition():
        assert monotonic() < give_up
        sleep(0.002)


def busy_for_a_while(server: OneAtATime) -> threading.Thread:
    """Somebody else is there until several INITs wait."""
    first = BlockingSession.connect(server.address, profile=server.machine.profile)

    def leave() -> None:
        wait_for(lambda: sum(len(data) > 1 for data, _ in server.waiting) > 1)
        first.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    return leaving
