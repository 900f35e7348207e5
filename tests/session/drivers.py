"""Both drivers of a session behind one face: what is promised of one is tested of the other with the same lines."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import trio

from ospbridge.interface import Endpoint
from ospbridge.session.blocking import BlockingSession
from ospbridge.session.trio_session import TrioSession
from ospbridge.simulator.udp import UdpSimulator

if TYPE_CHECKING:
    Server = UdpSimulator | Endpoint | str


class Driver:
    """Makes sessions. ``connect`` takes a server for what it is, since finding that out takes a moment each time."""

    name = "blocking"

    def connect(self, server: Server, **options: Any) -> Any:
        if isinstance(server, Endpoint | str):
            return self._connected(server, options)
        return self._connected(server.address, {"profile": server.machine.profile, **options})

    def having(self, server: Server, *agents: str, **options: Any) -> Any:
        """A session that has these agents."""
        session = self.connect(server, **options)
        session.register(*agents)
        return session

    def playing(self, server: Server, *agents: str, seed: int = 1, **options: Any) -> Any:
        """The same after a reset."""
        session = self.having(server, *agents, **options)
        session.reset(seed)
        return session

    def _connected(self, address: Endpoint | str, options: dict[str, Any]) -> Any:
        return BlockingSession.connect(address, **options)


class TrioDriver(Driver):
    """Its sessions are those of trio, which runs in a thread of its own."""

    name = "trio"

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._main,), daemon=True)

    async def _main(self) -> None:
        self._token, self._over = trio.lowlevel.current_trio_token(), trio.Event()
        self._begun.set()
        await self._over.wait()

    def run(self, call: Callable[..., Any], *given: Any, **named: Any) -> Any:
        async def called() -> Any:
            result = call(*given, **named)
            return await result if inspect.isawaitable(result) else result

        return trio.from_thread.run(called, trio_token=self._token)

    def _connected(self, address: Endpoint | str, options: dict[str, Any]) -> Any:
        return Plain(self, self.run(TrioSession.connect, address, **options))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._begun.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        trio.from_thread.run_sync(self._over.set, trio_token=self._token)
        self._thread.join(30)


class Plain:
    """A session of trio whose methods are plain ones."""

    def __init__(self, driver: TrioDriver, session: TrioSession) -> None:
        self._driver = driver
        self._session = session

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, "aclose" if name == "close" else name)
        if not inspect.ismethod(found):
            return found
        return lambda *given, **named: self._driver.run(found, *given, **named)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def driver(name: str) -> Iterator[Driver]:
    if name == "trio":
        with TrioDriver() as made:
            yield made
    else:
        yield Driver()
