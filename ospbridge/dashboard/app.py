"""The dashboard's web application: one page, what belongs to it, and the stream of events that fills it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from ospbridge.dashboard.assets import TYPES, page_files
from ospbridge.dashboard.guard import Guard
from ospbridge.dashboard.overview import Overview
from ospbridge.dashboard.streaming import MOST_STREAMS, EventStream

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ospbridge.dashboard.address import Access
    from ospbridge.dashboard.overview import Parts
    from ospbridge.dashboard.streaming import Source

__all__ = ["Application"]

LOOK_EVERY: Final = 0.4
"""Seconds between two looks at the daemon, while somebody looks on."""
PAGE: Final = "page.html"
DOOR: Final = "door.html"


class Application:
    """``asgi`` is what a server runs; its streams end once ``over`` is set. ``run`` must be running for them."""

    def __init__(self, source: Source, access: Access, *, port: int) -> None:
        self.over = trio.Event()
        self.streams = 0
        """That are open."""
        self._source = source
        self._overview = Overview()
        self._wanted = trio.lowlevel.ParkingLot()
        files = page_files()
        routes = [Route("/", _file(PAGE, files.pop(PAGE)))]
        door = files.pop(DOOR)
        routes += [Route(f"/{name}", _file(name, data)) for name, data in files.items()]
        routes.append(Route("/events", self._events, methods=["GET"]))
        self.asgi: ASGIApp = Guard(Starlette(routes=routes), access, port=port, door=door)

    async def run(self) -> None:
        """Look at the daemon again and again, while somebody looks on."""
        while True:
            if not self.streams:
                await self._wanted.park()
            self._look()
            await trio.sleep(LOOK_EVERY)

    def _look(self) -> None:
        self._overview.refresh(
            self._source.statuses(), self._source.warnings(), now=trio.current_time(), wall=time.time()
        )

    def _parts(self) -> Parts:
        return self._overview.parts

    async def _events(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return PlainTextResponse(
                f"{MOST_STREAMS} pages look on already; close one of them.\n", 503, {"Retry-After": "5"}
            )
        asked = request.query_params
        watched = (asked.get("simulator", ""), asked["agent"]) if "agent" in asked else None
        return _Counted(self, EventStream(self._source, self._parts, self.over, watched))

    async def stream(self, events: EventStream, scope: Scope, receive: Receive, send: Send) -> None:
        """One page is kept up to date."""
        self.streams += 1
        try:
            if self.streams == 1:
                # What was seen for the last one who looked on may be hours old.
                self._look()
                self._wanted.unpark_all()
            await events(scope, receive, send)
        finally:
            self.streams -= 1


class _Counted(Response):
    """A response that Starlette sends by calling it."""

    def __init__(self, application: Application, events: EventStream) -> None:
        super().__init__()
        self._application = application
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._application.stream(self._events, scope, receive, send)


def _file(name: str, data: bytes) -> Callable[[Request], Awaitable[Response]]:
    kind = TYPES[name.rpartition(".")[2]]

    async def answer(_: Request) -> Response:
        return Response(data, media_type=kind)

    return answer
