"""Puts the modules of a bridge onto a kernel and a clock of the run's own, and makes trio's choices repeatable."""

from __future__ import annotations

import itertools
import random
import select
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import greenback
import trio
import trio.testing

import ospbridge.daemon.hub.connection
import ospbridge.daemon.relay.link
import ospbridge.daemon.service
import ospbridge.envs.hub
import ospbridge.envs.sharing
import ospbridge.record.spool
import ospbridge.session.blocking
import ospbridge.session.channel
import ospbridge.session.connect
import ospbridge.session.core
import ospbridge.session.hub_client
import ospbridge.session.hub_exchange
import ospbridge.session.rebuild
import ospbridge.simulator.udp
import ospbridge.transport.udp
import ospbridge.transport.unix
from ospbridge.record.spool import Entry, Made, Spool
from tests.storm.kernel import Epoll, Kernel, Poll, Socket, until_ready


def pause(seconds: float) -> None:
    """``time.sleep`` for whoever blocks."""
    greenback.await_(trio.sleep(seconds))


class Signals:
    """What a daemon is told: by ``end``, as by SIGTERM."""

    def __init__(self) -> None:
        self._send, self.receive = trio.open_memory_channel[int](8)

    def end(self) -> None:
        self._send.send_nowait(signal.SIGTERM)


class Streams:
    """TCP to one server: ``serve`` gets each connection."""

    def __init__(self, nursery: trio.Nursery, serve: Callable[[Any], Awaitable[None]]) -> None:
        self._nursery = nursery
        self._serve = serve

    async def open(self, *_: object, **__: object) -> Any:
        await trio.lowlevel.checkpoint()
        ours, theirs = trio.testing.memory_stream_pair()
        for end, name in ((ours, "client"), (theirs, "server")):
            end.transport_stream = end  # type: ignore[attr-defined]
            end.socket = SimpleNamespace(  # type: ignore[attr-defined]
                setsockopt=lambda *_: None, getpeername=lambda name=name: (name, 1), family=socket.AF_INET
            )
        self._nursery.start_soon(self._serve, theirs)
        return ours


class HubListener:
    """As ``HubSocket``, without a file."""

    stands = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket = Socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()

    def close(self) -> None:
        self.socket.close()


class PromptSpool(Spool):
    """Writes what is put at once, in the thread of whoever puts it."""

    def put_made(self, size: int, make: Callable[[], Sequence[Made]]) -> bool:
        kept = super().put_made(size, make)
        self._write_waiting()
        return kept

    def forget(self, entries: Sequence[Entry]) -> None:
        super().forget(entries)
        self._write_waiting()


class _NoThread:
    """A thread that never runs."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self) -> None:
        pass

    def join(self, _: float | None = None) -> None:
        pass

    def is_alive(self) -> bool:
        return False


async def _at_once(function: Callable[..., Any], *arguments: Any, **_: object) -> Any:
    """In a task of its own, as in a thread."""
    return await greenback.with_portal_run_sync(function, *arguments)


def _instead(module: Any, **other: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(module), **other})


@asynccontextmanager
async def virtual(seed: int) -> AsyncIterator[Kernel]:
    """Within it, in a run under ``trio.testing.MockClock(autojump_threshold=0)``, the bridge lives on the kernel."""
    kernel = Kernel.current = Kernel()
    numbers: dict[int, int] = {}
    counting = itertools.count(1)
    wait_readable, wait_writable = trio.lowlevel.wait_readable, trio.lowlevel.wait_writable
    notify_closing = trio.lowlevel.notify_closing

    def task_number() -> int:
        """A task stands for a thread of a process."""
        task = id(trio.lowlevel.current_task())
        if task not in numbers:
            numbers[task] = next(counting)
        return numbers[task]

    async def readable(file: Any) -> None:
        found = kernel.file(file)
        if found is None:
            await wait_readable(file)
            return
        await trio.lowlevel.checkpoint()
        while not found.readable:
            if isinstance(found, Socket) and found.fileno() < 0:
                raise trio.ClosedResourceError
            await until_ready([found], float("inf"))

    async def writable(file: Any) -> None:
        if kernel.file(file) is None:
            await wait_writable(file)
        else:
            await trio.lowlevel.checkpoint()

    def closing(file: Any) -> None:
        if kernel.file(file) is None:
            notify_closing(file)

    sockets = _instead(socket, socket=Socket, socketpair=Socket.pair)
    polls = _instead(select, poll=Poll, epoll=Epoll)
    clock = _instead(time, monotonic=trio.current_time, sleep=pause)
    patches: dict[Any, dict[str, Any]] = {
        trio.lowlevel: {"wait_readable": readable, "wait_writable": writable, "notify_closing": closing},
        trio.to_thread: {"run_sync": _at_once},
        trio.from_thread: {"check_cancelled": lambda: None},
        ospbridge.transport.udp: {"socket": sockets},
        ospbridge.transport.unix: {"socket": sockets},
        ospbridge.simulator.udp: {
            "socket": sockets,
            "select": polls,
            "time": clock,
            "signal": _instead(signal, set_wakeup_fd=lambda *_, **__: -1),
        },
        ospbridge.daemon.hub.connection: {"select": polls, "monotonic": trio.current_time},
        ospbridge.daemon.service: {"HubSocket": HubListener},
        ospbridge.session.rebuild: {
            "monotonic": trio.current_time,
            "sleep": pause,
            "SAID_AFTER": float("inf"),
        },
        ospbridge.session.blocking: {"monotonic": trio.current_time, "sleep": pause},
        ospbridge.session.channel: {"select": polls, "monotonic": trio.current_time},
        ospbridge.session.connect: {"monotonic": trio.current_time, "sleep": pause},
        ospbridge.session.core: {"select": polls},
        ospbridge.session.hub_exchange: {"monotonic": trio.current_time, "select": polls},
        ospbridge.session.hub_client: {
            "monotonic": trio.current_time,
            "sleep": pause,
        },
        ospbridge.envs.hub: {"threading": _instead(threading, get_native_id=task_number)},
        ospbridge.session.connect.GOODBYES: {"_done": {}},
        ospbridge.session.connect.RESTARTS: {"_done": {}},
        ospbridge.envs.sharing: {
            "monotonic": trio.current_time,
            "sleep": pause,
            "threading": _instead(threading, get_ident=task_number),
        },
        ospbridge.record.spool: {"threading": _instead(threading, Thread=_NoThread)},
        ospbridge.daemon.relay.uploader: {"Spool": PromptSpool},
        trio._core._run: {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": random.Random(seed)},
    }
    random.seed(seed)
    with ExitStack() as stack:
        for module, others in patches.items():
            for name, other in others.items():
                stack.enter_context(mock.patch.object(module, name, other))
        yield kernel
