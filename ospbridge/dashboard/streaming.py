"""One browser's stream of server-sent events.

Nothing is queued for a browser: what it is told is made when it has taken what it was told before. A stream ends when
the browser goes away, or when the dashboard ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import trio

from ospbridge.dashboard.overview import changes
from ospbridge.dashboard.traces import Curves, Traces
from ospbridge.errors import OspBridgeError
from ospbridge.text import identifier

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from starlette.types import Receive, Scope, Send

    from ospbridge.dashboard.overview import Parts
    from ospbridge.hub.descriptions import AgentDescription
    from ospbridge.hub.replies import Moments
    from ospbridge.hub.status import StatusReply
    from ospbridge.observe.recent import Warned

__all__ = ["MOST_STREAMS", "EventStream", "Source", "Watching", "encoded"]


class Watching(Protocol):
    """A look at one agent, for as long as its context lasts."""

    @property
    def description(self) -> AgentDescription:
        """What its numbers are."""

    async def moments(self) -> Moments:
        """The latest moments that were not told before, as soon as there are some.

        Old ones are left out rather than told late; ``dropped`` counts them. Raises SessionLost where the agent is gone
        or has become another one.
        """


class Source(Protocol):
    """Answers at once, but for ``Watching.moments``."""

    def statuses(self) -> Sequence[StatusReply]:
        """One for each simulator; their ``name`` tells them apart."""

    def warnings(self) -> Sequence[Warned]:
        """The latest, the oldest first."""

    def watching(self, simulator: str, agent: str) -> AbstractContextManager[Watching]:
        """Look on at an agent of the simulator of that name. Raises AgentNotFound, SimulatorNotFound."""


MOST_STREAMS: Final = 16
"""Pages that are kept up to date at a time."""
LOOK_EVERY: Final = 0.1
"""Seconds."""
SAY_EVERY: Final = 1.0
"""Seconds after which a browser hears that we are there, if nothing else."""
WATCH_AGAIN_AFTER: Final = 1.0
_encoder: Final = msgspec.json.Encoder()


def encoded(event: str, data: Any) -> bytes:
    """One event, as ``text/event-stream`` has it. JSON has no line ends of its own."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encoder.encode(data))


class EventStream:
    """An ASGI application that answers one request. ``parts`` gives what the overview consists of now.

    ``watched``: the simulator and the agent whose moments are told too; ``over``: no stream goes on.
    """

    def __init__(
        self,
        source: Source,
        parts: Callable[[], Parts],
        over: trio.Event,
        watched: tuple[str, str] | None = None,
    ) -> None:
        self._source = source
        self._parts = parts
        self._over = over
        self._watched = watched
        self._told: Parts = {}
        self._traces = Traces()
        self._trouble: str | None = None
        """Why the agent cannot be watched, if that has not been told."""
        self._curves: Curves | None = None
        """What the points are, if that has not been told."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Tell until the other side goes away."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_gone, receive, nursery.cancel_scope)
            if self._watched is not None:
                nursery.start_soon(self._watch, *self._watched)
            await self._tell(send)
            nursery.cancel_scope.cancel()

    async def _until_gone(self, receive: Receive, scope: trio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()

    async def _tell(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = b"retry: 1000\n\n"
        said = -SAY_EVERY
        while not self._over.is_set():
            now = trio.current_time()
            body += self._news()
            if body or now - said >= SAY_EVERY:
                body += encoded("now", round(now, 3))
                await send({"type": "http.response.body", "body": body, "more_body": True})
                said, body = now, b""
            with trio.move_on_after(LOOK_EVERY):
                await self._over.wait()
        await send({"type": "http.response.body", "body": encoded("end", None), "more_body": False})

    def _news(self) -> bytes:
        parts = self._parts()
        found = bytearray()
        changed = changes(self._told, parts)
        if changed:
            found += b"event: changed\ndata: [" + b",".join(map(_encoder.encode, changed)) + b"]\n\n"
        self._told = parts
        if self._trouble is not None:
            found += encoded("lost", self._trouble)
            self._trouble = None
        if self._curves is not None:
            found += encoded("curves", self._curves)
            self._curves = None
        points = self._traces.take()
        if points:
            found += encoded("points", points)
        return bytes(found)

    def _named(self, simulator: str, agent: str) -> str:
        """The name of the agent that a page calls so."""
        return next(
            (
                each.name
                for status in self._source.statuses()
                if status.name == simulator
                for each in status.agents
                if identifier(each.name) == agent
            ),
            agent,
        )

    async def _watch(self, simulator: str, agent: str) -> None:
        """An agent that is gone may come again, and may be another one then."""
        while True:
            try:
                with self._source.watching(simulator, self._named(simulator, agent)) as watching:
                    self._traces.take()
                    self._trouble = None
                    self._curves = Curves.of(watching.description)
                    while True:
                        moments = await watching.moments()
                        self._traces.add(moments.moments, trio.current_time())
                        await trio.sleep(LOOK_EVERY)
            except OspBridgeError as error:
                self._trouble = error.message
            await trio.sleep(WATCH_AGAIN_AFTER)
