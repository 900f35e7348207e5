"""Sockets and polls for one trio run: a whole bridge in one process, under virtual time.

What is sent is there at once; nothing is lost here: that is what the simulator's own faults are for. Blocking code
waits through greenback, which lets the other tasks of the run go on meanwhile.
"""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Self

import greenback
import trio

HOST: Final = "127.0.0.1"
FIRST_DESCRIPTOR: Final = 1_000_000
"""Far from those that are real."""
FIRST_PORT: Final = 50_000
_HANGS_UP: Final = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Kernel:
    """All that the sockets of one run share."""

    current: Kernel

    def __init__(self) -> None:
        self.descriptors = itertools.count(FIRST_DESCRIPTOR)
        self.ports = itertools.count(FIRST_PORT)
        self.files: dict[int, File] = {}
        self.bound: dict[tuple[str, int], Socket] = {}
        self.listening: dict[str, Socket] = {}
        self.carried = 0

    def carry(self, sender: Socket, to: tuple[str, int], data: bytes) -> None:
        self.carried += 1
        receiver = self.bound.get(to)
        if receiver is None:
            if sender.peer == to:
                sender.refused = True
                sender.changed()
        elif receiver.peer in (None, sender.name):
            assert sender.name is not None
            receiver.datagrams.append((data, sender.name))
            receiver.changed()

    def add(self, file: File) -> int:
        """A descriptor for it: one more, where it has one already."""
        descriptor = next(self.descriptors)
        self.files[descriptor] = file
        return descriptor

    def file(self, which: Any) -> File | None:
        """A file of this kernel's, by itself or its descriptor."""
        if isinstance(which, Socket | Epoll):
            return which
        return self.files.get(which) if isinstance(which, int) else None


async def until_ready(files: Iterable[File], until: float) -> None:
    """Until something changes at one of them, or that time has come."""
    news = trio.Event()
    watched = [each for file in files for each in file.watched]
    for each in watched:
        each.watchers.append(news)
    try:
        with trio.move_on_at(until):
            await news.wait()
    finally:
        for each in watched:
            each.watchers.remove(news)


class Socket:
    """UDP over IPv4, or a Unix stream; never blocks."""

    ended = False
    """The other end of a stream was closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, proto: int = 0) -> None:
        self.kernel = Kernel.current
        self.watchers: list[trio.Event] = []
        self.changes = 0
        self.family, self.type, self.proto = family, kind, proto
        self.name: tuple[str, int] | None = None
        self.peer: tuple[str, int] | None = None
        self.datagrams: deque[tuple[bytes, tuple[str, int]]] = deque()
        self.refused = False
        self.other: Socket | None = None
        self.path = ""
        self.backlog: deque[Socket] = deque()
        self.stream = bytearray()
        self._descriptor = self.kernel.add(self)

    @classmethod
    def pair(cls) -> tuple[Socket, Socket]:
        one, other = cls(socket.AF_UNIX), cls(socket.AF_UNIX)
        one.other, other.other = other, one
        return one, other

    # --- what it is ------------------------------------------------------------------------------------------------

    @property
    def watched(self) -> list[File]:
        return [self]

    def changed(self) -> None:
        self.changes += 1
        for each in self.watchers:
            each.set()

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, _: bool) -> None:
        pass

    def setsockopt(self, *_: Any) -> None:
        pass

    def getsockopt(self, _: int, option: int, size: int = 0) -> Any:
        if option == socket.SO_PEERCRED:
            # Of another user, to whom less is entrusted.
            return struct.pack("3i", os.getpid(), os.geteuid() + 1, 0)
        return 2**23

    def getsockname(self) -> tuple[str, int]:
        if self.name is None:
            self.bind((HOST, 0))
        assert self.name is not None
        return self.name

    @property
    def readable(self) -> bool:
        return bool(self.datagrams or self.refused or self.backlog or self.stream or self.ended)

    # --- life ------------------------------------------------------------------------------------------------------

    def bind(self, address: Any) -> None:
        if self.family == socket.AF_UNIX:
            self.path = str(address)
            return
        port = address[1] or next(self.kernel.ports)
        if (HOST, port) in self.kernel.bound:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.name = HOST, port
        self.kernel.bound[self.name] = self

    def listen(self, _: int = 0) -> None:
        self.kernel.listening[self.path] = self

    def accept(self) -> tuple[Socket, str]:
        if not self.backlog:
            raise BlockingIOError
        return self.backlog.popleft(), ""

    def connect(self, address: Any) -> None:
        if self.family == socket.AF_UNIX:
            listener = self.kernel.listening.get(str(address))
            if listener is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            theirs = Socket(socket.AF_UNIX)
            self.other, theirs.other = theirs, self
            listener.backlog.append(theirs)
            listener.changed()
            return
        self.getsockname()
        self.peer = address[0], address[1]

    def shutdown(self, _: int) -> None:
        """Of a stream: nothing more comes from here."""
        if self.other is not None:
            self.other.ended = True
            self.other.changed()

    def close(self) -> None:
        if self._descriptor < 0:
            return
        self.kernel.files.pop(self._descriptor)
        self._descriptor = -1
        if self.name is not None:
            self.kernel.bound.pop(self.name, None)
        if self.kernel.listening.get(self.path) is self:
            del self.kernel.listening[self.path]
        if self.other is not None:
            self.other.ended = True
            self.other.other = None
            self.other.changed()
            self.other = None
        self.changed()

    # --- datagrams and bytes ---------------------------------------------------------------------------------------

    def sendto(self, data: bytes, address: tuple[str, int]) -> int:
        self.getsockname()
        self.kernel.carry(self, address, bytes(data))
        return len(data)

    def send(self, data: Any, _: int = 0) -> int:
        if self.type == socket.SOCK_DGRAM:
            self._raise_refusal()
            assert self.peer is not None
            return self.sendto(data, self.peer)
        if self.other is None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self.other.stream += data
        self.other.changed()
        return len(data)

    def recvfrom(self, size: int) -> tuple[bytes, tuple[str, int]]:
        self._raise_refusal()
        if not self.datagrams:
            raise BlockingIOError
        return self.datagrams.popleft()

    def recv(self, size: int, _: int = 0) -> bytes:
        if self.type == socket.SOCK_DGRAM:
            return self.recvfrom(size)[0]
        if not self.stream and not self.ended:
            raise BlockingIOError
        data = bytes(self.stream[:size])
        del self.stream[:size]
        return data

    def recv_into(self, buffer: Any) -> int:
        data = self.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _raise_refusal(self) -> None:
        if self.refused:
            self.refused = False
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


class Epoll:
    """``select.epoll``, as far as it is used."""

    ended = False

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self.watchers: list[trio.Event] = []
        self._told: dict[int, int] = {}
        """The changes after which a descriptor was told of, by descriptor."""
        self._kernel = Kernel.current
        self._descriptor = self._kernel.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        return self._descriptor

    def register(self, file: Any, mask: int = select.EPOLLIN) -> None:
        self._masks[file if isinstance(file, int) else file.fileno()] = mask
        # Whoever waits for the set waits for this one as well from now on.
        for each in self.watchers:
            each.set()

    def unregister(self, file: Any) -> None:
        self._masks.pop(file if isinstance(file, int) else file.fileno(), None)

    def close(self) -> None:
        self._kernel.files.pop(self._descriptor, None)

    @property
    def watched(self) -> list[File]:
        return [self, *(each for _, file in self._members for each in file.watched)]

    @property
    def changes(self) -> int:
        return sum(file.changes for _, file in self._members)

    @property
    def _members(self) -> list[tuple[int, File]]:
        """Sets may be members of others."""
        found = ((descriptor, self._kernel.files.get(descriptor)) for descriptor in self._masks)
        return [(descriptor, file) for descriptor, file in found if file is not None]

    @property
    def readable(self) -> bool:
        return bool(self._ready())

    def _ready(self) -> list[tuple[int, int]]:
        ready = []
        for descriptor, file in self._members:
            mask = self._masks[descriptor]
            now = (select.EPOLLIN if file.readable else 0) | (select.EPOLLRDHUP if file.ended else 0)
            if mask & select.EPOLLET and self._told.get(descriptor) == file.changes:
                continue
            if now & (mask | _HANGS_UP):
                ready.append((descriptor, now))
        return ready

    def poll(self, timeout: float | None = -1, _: int = -1) -> list[tuple[int, int]]:
        """``timeout`` in seconds."""
        ready = self._ready()
        if not ready and timeout != 0:
            forever = timeout is None or timeout < 0
            until = float("inf") if forever else trio.current_time() + (timeout or 0.0)
            greenback.await_(until_ready([self], until))
            ready = self._ready()
        for descriptor, file in self._members:
            self._told[descriptor] = file.changes
        return ready


File = Socket | Epoll


class Poll:
    """``select.poll``, as far as it is used: for reading."""

    def __init__(self) -> None:
        self._files: dict[int, File] = {}

    def register(self, which: Socket | int, mask: int = select.POLLIN) -> None:
        assert mask == select.POLLIN, "streams here always have room"
        file = Kernel.current.file(which)
        assert file is not None, "no file of this kernel's"
        self._files[_descriptor(which)] = file

    def unregister(self, which: Socket | int) -> None:
        del self._files[_descriptor(which)]

    def poll(self, milliseconds: float | None = None) -> list[tuple[int, int]]:
        files = self._files.values()
        if milliseconds != 0 and not any(file.readable for file in files):
            until = float("inf") if milliseconds is None else trio.current_time() + milliseconds / 1000
            greenback.await_(until_ready(files, until))
        return [(descriptor, select.POLLIN) for descriptor, file in self._files.items() if file.readable]


def _descriptor(which: Socket | int) -> int:
    return which if isinstance(which, int) else which.fileno()
