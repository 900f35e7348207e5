"""The web server's connections: whatever one of them raises costs that one alone.

Hypercorn expects nothing but OSError of a connection, and ends as a whole with anything else. Yet what a visitor says
can raise much in the libraries that read it, before any request is made of it: settings of HTTP/2 that are none, for
instance, or a subprotocol of a websocket that is no text.
"""

from __future__ import annotations

from typing import Final

import hypercorn.trio.run
from hypercorn.trio.tcp_server import TCPServer

from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing

__all__ = ["contain"]

log = logs.get(__name__)
sparing: Final = Sparing()


class _Contained(TCPServer):
    async def run(self) -> None:
        """Serve it; it is closed then, however it ended."""
        try:
            await super().run()
        except* Exception as group:
            if sparing.due():
                log.warning("a visitor of the dashboard was cut off", exc_info=group)


def contain() -> None:
    """Have all web servers of this process serve their connections so."""
    hypercorn.trio.run.TCPServer = _Contained  # type: ignore[attr-defined]
