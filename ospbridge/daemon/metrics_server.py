"""The metrics over HTTP: ``GET /metrics``, one request a connection, on h11. Reads nothing that it does not answer."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final

import trio

from ospbridge.errors import ConfigurationError
from ospbridge.observe import logs
from ospbridge.observe.sparing import Sparing
from ospbridge.transport.addresses import is_loopback
from ospbridge.transport.admission import VisitorLimit, names_us

if TYPE_CHECKING:
    import h11
    from prometheus_client.registry import CollectorRegistry

    from ospbridge.daemon.notifying import Overlook
    from ospbridge.daemon.service import Companion
    from ospbridge.interface import Endpoint

__all__ = ["metrics_server", "need_the_extra"]

log = logs.get(__name__)
PATH: Final = "/metrics"
WITHIN: Final = 10.0
"""Seconds for one request and its answer."""
MOST_AT_ONCE: Final = 16
AGAIN_AFTER: Final = 1.0
"""Seconds until it listens again."""
LARGEST_REQUEST: Final = 16 * 1024
"""Bytes of a request's head."""
PAGE: Final = b'<!doctype html><title>ospbridge</title><a href="/metrics">metrics</a>\n'
STRANGER: Final = b"This host is not known by that name here. Call it by its IP address or localhost.\n"


def metrics_server(address: Endpoint) -> Companion:
    """What serves them. Raises ConfigurationError without the extra, or for an address that is taken."""
    need_the_extra()
    return _MetricsServer(address).run


def need_the_extra() -> None:
    """Raises ConfigurationError where it is not installed."""
    missing = [name for name in ("prometheus_client", "h11") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"--metrics needs {' and '.join(missing)}", hint="pip install 'ospbridge[metrics]'"
        )


class _MetricsServer:
    def __init__(self, address: Endpoint) -> None:
        self._address = address
        self._crowd = VisitorLimit(MOST_AT_ONCE)
        self._complaint = Sparing()

    async def run(self, overlook: Overlook) -> None:
        """Until cancelled."""
        from ospbridge.daemon.metrics import registry

        try:
            listeners = await self._listening(self._address.port)
        except OSError as error:
            # The daemon does its work without being looked at.
            log.warning(
                "metrics are not served",
                address=str(self._address),
                reason=error.strerror or str(error),
                hint="choose another address with --metrics [HOST:]PORT; port 0 takes a free one",
            )
            return
        found = registry(overlook)
        ours_alone = all(is_loopback(listener.socket.getsockname()[0]) for listener in listeners)
        host, port = self._address.host, listeners[0].socket.getsockname()[1]
        log.info("metrics open", url=f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}")

        async def answer(stream: trio.SocketStream) -> None:
            try:
                host = str(stream.socket.getpeername()[0])
            except OSError:
                # It was gone before it was heard.
                await trio.aclose_forcefully(stream)
                return
            scope = self._crowd.enter(host)
            if scope is None:
                await trio.aclose_forcefully(stream)
                return
            try:
                with scope:
                    await _answer(stream, found, ours_alone=ours_alone)
            except Exception:
                log.exception("metrics could not be told", hint="please report this")
                await trio.aclose_forcefully(stream)
            finally:
                self._crowd.leave(scope)

        while True:
            # What accepting says may be of one connection, as where a firewall or a security module denies it.
            try:
                await trio.serve_listeners(answer, listeners or await self._listening(port))
            except* OSError as group:
                listeners = []
                if self._complaint.due():
                    reason: BaseException = group
                    while isinstance(reason, BaseExceptionGroup):
                        reason = reason.exceptions[0]
                    log.warning("metrics are opened again", reason=str(reason))
            await trio.sleep(AGAIN_AFTER)

    async def _listening(self, port: int) -> list[trio.SocketListener]:
        return await trio.open_tcp_listeners(port, host=self._address.host)


async def _answer(stream: trio.SocketStream, found: CollectorRegistry, *, ours_alone: bool) -> None:
    """``ours_alone``: only this host can reach us, so that who calls us otherwise is a page of another site's."""
    import h11

    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_REQUEST)
    with trio.move_on_after(WITHIN):
        try:
            try:
                request = await _request(stream, connection)
            except h11.RemoteProtocolError as error:
                await _send(stream, connection, error.error_status_hint, [], f"{error}\n".encode())
                return
            if request is None:
                return
            if request.method != b"GET":
                await _send(stream, connection, 405, [("Allow", "GET")], b"")
                return
            if ours_alone and not all(names_us(host) for host in _hosts(request)):
                await _send(
                    stream, connection, 403, [("Content-Type", "text/plain; charset=utf-8")], STRANGER
                )
                return
            status, headers, body = _resource(request, found)
            await _send(stream, connection, status, headers, body)
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
            pass  # whoever asked is gone
        finally:
            await trio.aclose_forcefully(stream)


async def _request(stream: trio.SocketStream, connection: h11.Connection) -> h11.Request | None:
    import h11

    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        connection.receive_data(await stream.receive_some(LARGEST_REQUEST))


def _hosts(request: h11.Request) -> list[str]:
    """One, or none of a client of HTTP 1.0, which is no browser."""
    return [value.decode("latin-1") for name, value in request.headers if name == b"host"]


def _resource(request: h11.Request, found: CollectorRegistry) -> tuple[int, list[tuple[str, str]], bytes]:
    from prometheus_client.exposition import choose_encoder

    path = request.target.partition(b"?")[0].decode("ascii", "replace")
    if path == PATH:
        accept = ",".join(value.decode("latin-1") for name, value in request.headers if name == b"accept")
        encoder, kind = choose_encoder(accept)
        return 200, [("Content-Type", kind), ("Cache-Control", "no-store")], encoder(found)
    if path == "/":
        return 200, [("Content-Type", "text/html; charset=utf-8")], PAGE
    return 404, [("Content-Type", "text/plain; charset=utf-8")], f"there is only {PATH}\n".encode()


async def _send(
    stream: trio.SocketStream,
    connection: h11.Connection,
    status: int,
    headers: list[tuple[str, str]],
    body: bytes,
) -> None:
    import h11

    said = [*headers, ("Content-Length", str(len(body))), ("Connection", "close")]
    parts = [
        connection.send(h11.Response(status_code=status, headers=said)),
        connection.send(h11.Data(data=body)) if body else None,
        connection.send(h11.EndOfMessage()),
    ]
    await stream.send_all(b"".join(part for part in parts if part))
    await stream.send_eof()
