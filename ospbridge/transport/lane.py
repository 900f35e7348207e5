"""Memory that two processes of one host share, for one message each way at a time, beside a Unix socket.

Of what a step through a socket costs two processes more than half is the kernel's: bytes are put into buffers of its
own, and whoever waits is woken for each of them. Here a message stands where the other side reads it, and one call
tells it to look. Several clients that wait for the same thing hear one ``Bell``.

What the other side writes may change at any time, and is copied before it is looked at. The memory's size is sealed, so
that nobody can take it away from whoever reads.

The number of a message is written behind the message. That is the order in which others see it on the processors that
are named here; the rest keep to the socket.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import platform
import select
import struct
import sys
import weakref
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from ospbridge.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FILES", "MOST", "Bell", "ClientLane", "DaemonLane", "possible"]

MOST: Final = 64 * 1024 - 64
"""Bytes of a message, with its length."""
HALF: Final = 64 * 1024
FIRST: Final = HALF - MOST
"""Where a message stands in its half, behind its number, in a cache line of its own."""
SIZE: Final = 2 * HALF
ANSWERS: Final = HALF // 8
"""The place, in words of 8 bytes, of the number of the daemon's half."""
HEAD: Final = struct.Struct("<I")
ANSWER: Final = HALF + FIRST + HEAD.size
"""Where the daemon's message stands, behind its length."""
IN_ORDER: Final = frozenset({"x86_64", "amd64", "i686", "i586", "s390x"})
"""Processors whose stores others see in the order in which they were made."""
FILES: Final = 3
"""What a client is given: the memory, the descriptor that tells the daemon, the bell that tells the client."""
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
LOOK_AGAIN: Final = 1.0
"""Seconds after which a client looks by itself: whatever another one does to the bell costs no more."""
SHOWN: Final = 48
"""Bytes of a wrong message that are shown."""
_length_at: Final = HEAD.unpack_from


def possible() -> bool:
    """Whether this host's system and processor can do it."""
    return (
        sys.platform == "linux"
        and hasattr(os, "memfd_create")
        and hasattr(os, "eventfd")
        and platform.machine().lower() in IN_ORDER
    )


class Bell:
    """Tells all clients at once that some of them may have an answer; between ``hold`` and ``release`` once for all.

    Whoever has what rings could drain it, or fill it and have the daemon wait for room. That is for clients of the
    daemon's own user, who could as well stop the daemon; others are given an epoll set around it, which only tells, and
    costs each ring some 5 % of a step of many processes.
    """

    __slots__ = ("_due", "_rings", "_tells", "_together")

    def __init__(self) -> None:
        self._rings = -1
        """Made for the first lane."""
        self._tells: select.epoll | None = None
        self._together = False
        self._due = False

    def descriptor(self, *, ours: bool) -> int:
        """What a client is given, one of our own user or another. Raises OSError."""
        if self._tells is None:
            with ExitStack() as undo:
                rings = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                undo.callback(os.close, rings)
                tells = select.epoll()
                undo.callback(tells.close)
                tells.register(rings, select.EPOLLIN)
                undo.pop_all()
            self._rings, self._tells = rings, tells
        return self._rings if ours else self._tells.fileno()

    def ring(self) -> None:
        """Never raises."""
        if self._together:
            self._due = True
            return
        # Where one of our own user has filled it clients look by themselves, too.
        with suppress(BlockingIOError):
            if self._tells is not None:
                os.eventfd_write(self._rings, 1)

    def hold(self) -> None:
        """Several answers follow, and then ``release``."""
        self._together = True

    def release(self) -> None:
        self._together = False
        if self._due:
            self._due = False
            self.ring()

    def close(self) -> None:
        """Safe to call again."""
        tells, self._tells = self._tells, None
        if tells is not None:
            tells.close()
            os.close(self._rings)


class DaemonLane:
    """The side that makes the memory and reads requests. Raises OSError where the host has none to give.

    ``doorbell`` becomes readable, for an edge-triggered look, whenever a request was written. It is the client's too,
    so that closing it here does not take it out of an epoll set. ``ours``: the client is one of our own user.
    """

    __slots__ = ("_bell", "_file", "_hears", "_map", "_numbers", "_request", "doorbell")

    def __init__(self, bell: Bell, *, ours: bool) -> None:
        self._bell = bell
        self._request = 0
        """The number of the latest."""
        self._file = -1
        self.doorbell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            self._hears = bell.descriptor(ours=ours)
            self._file = os.memfd_create("ospbridge-lane", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self._file, SIZE)
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, SEALS)
            self._map = mmap.mmap(self._file, SIZE)
        except BaseException:
            os.close(self.doorbell)
            self.given()
            raise
        self._numbers = memoryview(self._map).cast("Q")

    @property
    def request(self) -> int:
        """The number of the latest request."""
        return self._request

    @property
    def files(self) -> tuple[int, int, int]:
        """The descriptors that the client must be given; then say ``given``."""
        return self._file, self.doorbell, self._hears

    def given(self) -> None:
        """The client has the memory's descriptor, or never will."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    @property
    def asked(self) -> bool:
        """There is a request that was not taken yet."""
        return self._numbers[0] != self._request

    def take(self) -> bytes | None:
        """A request that was not taken yet, behind its length. Raises RemoteProtocolError for one that cannot be."""
        number = self._numbers[0]
        if number == self._request:
            return None
        self._request = number
        shared = self._map
        (length,) = _length_at(shared, FIRST)
        if length > MOST - HEAD.size:
            raise _too_long(length, shared[FIRST : FIRST + SHOWN])
        return shared[FIRST : FIRST + HEAD.size + length]

    def put(self, frame: bytearray) -> bool:
        """Answer the latest request with a message behind its length; False where it is too long."""
        size = len(frame)
        if size > MOST:
            return False
        self._map[HALF + FIRST : HALF + FIRST + size] = frame
        self._numbers[ANSWERS] = self._request
        self._bell.ring()
        return True

    def close(self) -> None:
        """Safe to call again."""
        self.given()
        doorbell, self.doorbell = self.doorbell, -1
        if doorbell >= 0:
            os.close(doorbell)
            self._numbers.release()
            self._map.close()


class ClientLane:
    """The side that asks, beside the ``stream``, a descriptor that stays the caller's.

    The ``files`` are its own from now on. Raises OSError where they cannot be used.
    """

    __slots__ = ("__weakref__", "_map", "_numbers", "_poll", "_release", "_ring", "_stream", "request")

    def __init__(self, files: Sequence[int], stream: int) -> None:
        with ExitStack() as kept:
            for descriptor in files[1:]:
                kept.callback(os.close, descriptor)
            with ExitStack() as passing:
                for descriptor in files[:1]:
                    passing.callback(os.close, descriptor)
                if len(files) != FILES:
                    raise OSError(errno.EBADF, f"{len(files)} descriptors came, expected {FILES}")
                file, doorbell, bell = files
                if os.fstat(file).st_size != SIZE or fcntl.fcntl(file, fcntl.F_GET_SEALS) & SEALS != SEALS:
                    raise OSError(errno.EINVAL, "the size of the memory that came may change")
                poll = kept.enter_context(select.epoll())
                poll.register(stream, select.EPOLLIN)
                # Nobody ever reads the bell, so that everybody is told of each ring.
                poll.register(bell, select.EPOLLIN | select.EPOLLET)
                self._map = mmap.mmap(file, SIZE)
            # Also where nobody closes it: descriptors are numbers, and nothing else would.
            self._release = weakref.finalize(self, kept.pop_all().close)
            self._release.atexit = False
        self._numbers = memoryview(self._map).cast("Q")
        self.request = 0
        """The number of the latest."""
        self._ring = partial(os.eventfd_write, doorbell, 1)
        self._poll = poll.poll
        self._stream = stream

    def post(self, frame: bytearray) -> bool:
        """Ask: a message behind its length; False where it is too long. Raises OSError."""
        size = len(frame)
        if size > MOST:
            return False
        self._map[FIRST : FIRST + size] = frame
        self.request += 1
        self._numbers[0] = self.request
        self._ring()
        return True

    def answer(self) -> memoryview | None:
        """The answer to the latest request, without its length, where it is there. Raises RemoteProtocolError."""
        if self._numbers[ANSWERS] != self.request:
            return None
        shared = self._map
        (length,) = _length_at(shared, HALF + FIRST)
        if length > MOST - HEAD.size:
            raise _too_long(length, shared[HALF + FIRST : HALF + FIRST + SHOWN])
        return memoryview(shared[ANSWER : ANSWER + length])

    def wait(self, seconds: float) -> bool:
        """Until there may be an answer, or something on the stream, which is True; for so many seconds at most.

        It may return early, with nothing.
        """
        events = self._poll(min(seconds, LOOK_AGAIN), 2)
        return bool(events) and self._stream in (events[0][0], events[-1][0])

    def close(self) -> None:
        """Safe to call again."""
        self._numbers.release()
        self._map.close()
        self._release()


def _too_long(length: int, shown: bytes) -> RemoteProtocolError:
    return RemoteProtocolError(
        f"a message of {length} bytes stands in shared memory, the limit is {MOST - HEAD.size}",
        data=shown,
        offset=0,
        hint="only environments of ospbridge speak to a hub",
    )
