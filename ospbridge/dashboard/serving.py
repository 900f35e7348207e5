"""The dashboard's life: it listens from the beginning, serves a source until it is cancelled, and never fails for long.

Whatever goes wrong in it is logged and costs nobody else anything: it is opened again.
"""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trio

from ospbridge.dashboard.address import Access, listening
from ospbridge.dashboard.door import Door
from ospbridge.errors import ConfigurationError
from ospbridge.interface import Endpoint
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.transport.unix import room_for_sockets

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from hypercorn.config import Config
    from starlette.types import ASGIApp

    from ospbridge.dashboard.streaming import Source

__all__ = ["Dashboard"]

log = logs.get(__name__)
AGAIN_AFTER: Final = 2.0
"""Seconds until it is opened again."""
GOODBYE: Final = 0.3
"""Seconds for visitors to be told that it is over; then they are shown out, ..."""
GRACE: Final = 0.6
"""... what the web server still does is ended, ..."""
LEAVE_WITHIN: Final = 1.0
"""... and so is everything."""


class Dashboard:
    """Listens at ``address`` as soon as it is made. Raises ConfigurationError for one that cannot work."""

    def __init__(self, address: Endpoint, access: Access) -> None:
        _need_the_extra()
        self._access = access
        self._socket = listening(address, guarded=bool(access.token))
        self._port: int = self._socket.getsockname()[1]
        self._host = address.host
        self._sparing = Sparing()
        self._unanswered = Sparing()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._socket.close()

    @property
    def port(self) -> int:
        return self._port

    @property
    def url(self) -> str:
        """What to open in a browser of this host; without the token."""
        host = "localhost" if self._host in ("0.0.0.0", "::") else self._host  # noqa: S104  # no bind: a comparison
        return f"http://{Endpoint(host, self._port)}/"

    async def run(self, source: Source) -> None:
        """Show ``source`` until cancelled."""
        log.info("dashboard open", url=self.url, token=bool(self._access.token))
        while True:
            try:
                await self._serve(source)
            except* Exception as group:  # the daemon goes on whatever happens here
                if self._sparing.due():
                    log.warning("the dashboard failed, and is opened again", exc_info=group)
            await trio.sleep(AGAIN_AFTER)

    async def _serve(self, source: Source) -> None:
        """Until cancelled, and a moment longer: the streams are ended then instead of cut."""
        from ospbridge.dashboard.app import Application

        application = Application(source, self._access, port=self._port)
        async with trio.open_nursery() as outer:
            outer.start_soon(_tell_when_cancelled, application.over)
            with (
                trio.CancelScope(shield=True) as scope,
                tempfile.TemporaryDirectory(dir=room_for_sockets()) as directory,
            ):
                visitors = trio.CancelScope()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_leave, application.over, visitors, scope)
                    nursery.start_soon(application.run)
                    inside = Path(directory) / "inside.sock"
                    listener = socket.socket(socket.AF_UNIX)
                    listener.bind(str(inside))
                    listener.listen()
                    door = Door(inside)
                    outside = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket.dup()))
                    nursery.start_soon(_let_in, door, outside, visitors)
                    await _web_server(application.asgi, listener, application.over, self._unanswered)
                    nursery.cancel_scope.cancel()
            outer.cancel_scope.cancel()


async def _web_server(
    asgi: ASGIApp,
    listener: socket.socket,
    over: trio.Event,
    unanswered: Sparing,
) -> None:
    """Hypercorn, until ``over``. It closes ``listener``. ``unanswered``: how often to log a request that failed."""
    from hypercorn.config import Config
    from hypercorn.trio import serve

    from ospbridge.dashboard.connections import contain

    contain()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        try:
            await asgi(scope, receive, send)
        except Exception as error:
            if unanswered.due():
                log.warning("the dashboard could not answer", path=scope.get("path", ""), exc_info=error)
            raise

    config = Config()
    _set(config, listener)
    await serve(app, config, shutdown_trigger=over.wait, mode="asgi")


def _set(config: Config, listener: socket.socket) -> None:
    config.bind = [f"fd://{listener.detach()}"]
    config.accesslog = None
    config.errorlog = None
    config.include_server_header = False
    config.graceful_timeout = GRACE
    config.shutdown_timeout = GRACE


async def _tell_when_cancelled(over: trio.Event) -> None:
    try:
        await trio.sleep_forever()
    finally:
        over.set()


async def _leave(over: trio.Event, visitors: trio.CancelScope, scope: trio.CancelScope) -> None:
    await over.wait()
    visitors.deadline = trio.current_time() + GOODBYE
    scope.deadline = trio.current_time() + LEAVE_WITHIN


async def _let_in(door: Door, outside: trio.SocketListener, visitors: trio.CancelScope) -> None:
    with visitors:
        await trio.serve_listeners(door.let_in, [outside])


async def _live(receive: Any, send: Any) -> None:
    """There is nothing to prepare and nothing to clean up, and to be cancelled is no failure."""
    kind = ""
    while kind != "lifespan.shutdown":
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})


def _need_the_extra() -> None:
    """Raises ConfigurationError."""
    try:
        import hypercorn
        import starlette
    except ImportError as error:
        raise ConfigurationError(
            f"the dashboard needs {error.name}, which is not installed",
            hint="say `pip install 'ospbridge[dashboard]'`",
        ) from None
    del hypercorn, starlette
