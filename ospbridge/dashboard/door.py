"""The door to the web server: takes connections from the network, as many as are allowed, and passes on what is said.

The web server itself listens at a private Unix socket behind it. It would take any number of connections, each of which
costs a descriptor that the daemon's environments need; and it sends to a peer that does not read for as long as that
takes, which nobody can cancel. Here such a peer is shown out, and all are when the dashboard ends.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError
from ospbridge.transport.admission import VisitorLimit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

__all__ = ["MOST_CONNECTIONS", "Door"]

MOST_CONNECTIONS: Final = 64
PATIENCE: Final = 10.0
"""Seconds for a browser to take what is sent to it."""
AT_ONCE: Final = 32 * 1024


class Door:
    """Leads to the web server that listens at ``inside``."""

    def __init__(self, inside: Path, *, most: int = MOST_CONNECTIONS, patience: float = PATIENCE) -> None:
        self._inside = inside
        self._crowd = VisitorLimit(most)
        self._patience = patience

    async def let_in(self, visitor: trio.SocketStream) -> None:
        """Serve one connection to its end; ``visitor`` is closed then.

        Raises ConfigurationError where the way inside is gone for good.
        """
        scope = None
        try:
            with suppress(OSError, trio.BrokenResourceError):
                scope = self._crowd.enter(str(visitor.socket.getpeername()[0]))
                if scope is not None:
                    with scope:
                        async with await self._entered() as host:
                            await self._pass_on(visitor, host)
        finally:
            if scope is not None:
                self._crowd.leave(scope)
            await trio.aclose_forcefully(visitor)

    async def _entered(self) -> trio.SocketStream:
        try:
            return await trio.open_unix_socket(self._inside)
        except FileNotFoundError:
            # Who tidies up among temporary files knows of no daemon that has run for months.
            raise ConfigurationError(
                f"{self._inside}, through which the dashboard is served, was removed",
                hint="let whatever cleans temporary files spare sockets that somebody listens at",
            ) from None

    async def _pass_on(self, visitor: trio.SocketStream, host: trio.SocketStream) -> None:
        """In both directions, until one side has nothing more to say: neither goes on without the other."""
        async with trio.open_nursery() as nursery:
            end = nursery.cancel_scope.cancel
            nursery.start_soon(_carry, visitor, host.send_all, end)
            nursery.start_soon(_carry, host, partial(self._send, visitor), end)

    async def _send(self, visitor: trio.SocketStream, data: bytes) -> None:
        with trio.fail_after(self._patience):
            await visitor.send_all(data)


async def _carry(
    giver: trio.SocketStream, give: Callable[[bytes], Awaitable[None]], end: Callable[[], None]
) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
        while data := await giver.receive_some(AT_ONCE):
            await give(data)
    end()
