"""Connected sockets for callers that block: a receive sleeps for so long and no longer, whatever signals come.

A socket with a timeout does that in one call, where asking, waiting and asking again are three; but it waits in each of
its calls. So there are two objects for one descriptor: one waits, and the other never does. TLS has bytes of its own
between the caller and the descriptor, so that only asking and waiting will do.
"""

from __future__ import annotations

import select
import socket
from array import array
from math import ceil
from time import monotonic
from typing import Final, Protocol

__all__ = ["LocalStream", "Patient", "PatientStream", "TlsStream", "wait_writable"]

DESCRIPTOR: Final = array("i").itemsize
"""Bytes of one that is sent along."""


class PatientStream(Protocol):
    """What both kinds of stream can do."""

    def send(self, data: bytes | bytearray | memoryview) -> int:
        """As much of it as finds room at once, in bytes. Raises BlockingIOError for nothing, OSError."""
        ...

    def receive(self, into: memoryview, seconds: float) -> int:
        """How many bytes came; 0 at the end. Raises BlockingIOError where none did in that time, OSError."""
        ...

    def receive_now(self, into: memoryview) -> int:
        """The same without waiting."""
        ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Patient(socket.socket):
    """The object for a socket's descriptor that waits. The descriptor stays the other one's, who closes it.

    ``settimeout`` says for how long; a receive raises TimeoutError then.
    """

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock.family, sock.type, sock.proto, sock.fileno())

    def __del__(self) -> None:
        self.detach()


class LocalStream:
    """A Unix socket that was connected."""

    __slots__ = ("_patience", "_patient", "_receive", "_receive_now", "_send", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._patient = Patient(sock)
        self._patience = -1.0
        """Seconds that it was told; none yet."""
        self._send = sock.send
        self._receive = self._patient.recv_into
        self._receive_now = sock.recv_into

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return self._send(data)

    def receive(self, into: memoryview, seconds: float) -> int:
        if seconds != self._patience:
            self._patient.settimeout(seconds)
            self._patience = seconds
        try:
            return self._receive(into)
        except TimeoutError:
            raise BlockingIOError from None

    def receive_now(self, into: memoryview) -> int:
        return self._receive_now(into)

    def receive_files(self, into: memoryview, seconds: float, most: int) -> tuple[int, list[int]]:
        """``receive``, with at most so many descriptors that came along, which are the caller's from now on."""
        self._patient.settimeout(seconds)
        self._patience = seconds
        room = socket.CMSG_SPACE(most * DESCRIPTOR)
        try:
            count, sent_along, _, _ = self._patient.recvmsg_into([into], room, socket.MSG_CMSG_CLOEXEC)
        except TimeoutError:
            raise BlockingIOError from None
        files = array("i")
        for level, kind, data in sent_along:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(data[: len(data) - len(data) % DESCRIPTOR])
        return count, files.tolist()

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


class TlsStream:
    """A TLS socket that was connected: one that tells with BlockingIOError that nothing is there."""

    __slots__ = ("_poll", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return self._socket.send(data)

    def receive(self, into: memoryview, seconds: float) -> int:
        deadline = 0.0
        while True:
            try:
                return self._socket.recv_into(into)
            except BlockingIOError:
                now = monotonic()
                deadline = deadline or now + seconds
                if now >= deadline:
                    raise
                self._poll.poll(ceil((deadline - now) * 1000))

    def receive_now(self, into: memoryview) -> int:
        return self._socket.recv_into(into)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()


def wait_writable(stream: PatientStream, seconds: float) -> None:
    """Until a stream that was full may have room, or that time has come."""
    poll = select.poll()
    poll.register(stream.fileno(), select.POLLOUT)
    poll.poll(ceil(seconds * 1000))
