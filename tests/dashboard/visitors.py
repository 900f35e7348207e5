"""Whoever asks the dashboard over a real socket: one request at a time, or a stream of events."""

from __future__ import annotations

import http.client
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio

WITHIN = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes


async def ask(port: int, path: str = "/", *, method: str = "GET", **headers: str) -> Answer:
    """``headers`` with ``_`` for ``-``."""
    said = {name.replace("_", "-"): value for name, value in headers.items()}

    def request() -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WITHIN)
        try:
            connection.request(method, path, headers=said)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    with trio.fail_after(WITHIN):
        return await trio.to_thread.run_sync(request)


class Events:
    """A stream of events that somebody reads."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._data = b""
        self.status = 0

    async def _until(self, end: bytes) -> bytes:
        while end not in self._data:
            more = await self._stream.receive_some(65536)
            if not more:
                raise EOFError
            self._data += more
        found, _, self._data = self._data.partition(end)
        return found

    async def begin(self) -> None:
        self.status = int((await self._until(b"\r\n\r\n")).split()[1])

    async def next(self, kind: str) -> Any:
        """The data of the next event of that kind."""
        while True:
            # Between two chunks of HTTP stands a line with the length of the second.
            lines = (await self._until(b"\n\n")).decode().split("\n")
            if f"event: {kind}" in lines:
                return json.loads(next(line for line in lines if line.startswith("data: "))[6:])

    async def part(self, kind: str) -> Any:
        """The next change to a part of that kind."""
        while True:
            for of, _, part in await self.next("changed"):
                if of == kind:
                    return part

    async def end(self) -> None:
        """Until the other side has closed."""
        while await self._stream.receive_some(65536):
            pass


@asynccontextmanager
async def listening_to(port: int, query: str = "", *, buffer: int | None = None) -> AsyncIterator[Events]:
    """Hangs up in the end. ``buffer``: bytes that the kernel takes for a visitor that reads nothing."""
    with trio.fail_after(WITHIN):
        sock = trio.socket.socket()
        if buffer is not None:
            sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, buffer)
        await sock.connect(("127.0.0.1", port))
        async with trio.SocketStream(sock) as stream:
            request = f"GET /events{query} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"
            await stream.send_all(request.encode())
            events = Events(stream)
            await events.begin()
            yield events
