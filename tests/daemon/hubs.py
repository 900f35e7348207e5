"""A hub of this process, and a client of a few lines that says to it what it likes."""

from __future__ import annotations

from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any, Final

import trio

from ospbridge.daemon.conductor import Conductor
from ospbridge.daemon.hub.server import HubServer
from ospbridge.daemon.settings import Settings
from ospbridge.hub.decoding import VERSION, decode_reply
from ospbridge.hub.framing import Incoming, encode
from ospbridge.hub.replies import Feedbacks, HubReply
from ospbridge.hub.requests import Attach, Hello, HubRequest, Reset
from ospbridge.transport.unix import HubSocket, connect_unix

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from ospbridge.simulator.udp import UdpSimulator
    from ospbridge.transport.tls import TlsListener

WITHIN: Final = 30.0


@asynccontextmanager
async def serving(
    simulator: UdpSimulator,
    path: Path,
    *,
    spin: bool = False,
    remote: TlsListener | None = None,
    **changes: Any,
) -> AsyncIterator[Conductor]:
    """A hub at ``path`` whose simulator is joined; ``changes`` are settings of it."""
    conductor = Conductor(Settings(hub=path, simulator=simulator.address, spin=spin, **changes))
    with (
        closing(HubSocket(path)) as listener,
        HubServer(listener, conductor, spin=spin, remote=remote) as server,
        trio.fail_after(WITHIN),
    ):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(conductor.run)
            nursery.start_soon(server.serve)
            while not conductor.ready:
                await trio.sleep(0.01)
            yield conductor
            nursery.cancel_scope.cancel()


class Line:
    """Requests and replies as they are, in whatever order and pieces."""

    def __init__(self, path: Path) -> None:
        self._socket = connect_unix(path)
        self._socket.settimeout(WITHIN)
        self._incoming = Incoming()

    @classmethod
    def playing(cls, path: Path, *agents: str) -> Line:
        """One whose episode has begun."""
        line = cls(path)
        line.ask(Hello(VERSION, "line"))
        line.ask(Attach(list(agents)))
        assert isinstance(line.ask(Reset([], 5)), Feedbacks)
        return line

    def say(self, *requests: HubRequest) -> None:
        self._socket.sendall(b"".join(self.frame(request) for request in requests))

    @staticmethod
    def frame(request: HubRequest) -> bytes:
        frame = bytearray()
        encode(request, frame)
        return bytes(frame)

    def say_bytes(self, data: bytes, *, within: float = WITHIN) -> None:
        self._socket.settimeout(within)
        self._socket.sendall(data)
        self._socket.settimeout(WITHIN)

    def hear(self) -> HubReply:
        while (message := self._incoming.next_message()) is None:
            count = self._socket.recv_into(self._incoming.space())
            assert count, "the daemon hung up"
            self._incoming.received(count)
        return decode_reply(message)

    def ask(self, request: HubRequest) -> HubReply:
        self.say(request)
        return self.hear()

    def close(self) -> None:
        self._socket.close()
