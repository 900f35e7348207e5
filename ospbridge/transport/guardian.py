"""The guardian: a small process that outlives this one by a moment, says goodbye for it, and ends what it launched.

A client that is killed in mid-step closes its port; a real server whose datagram meets a closed port never listens to
that client again, and keeps its agents for good. So each process with sessions has one guardian, which holds duplicates
of their sockets. It does nothing until this process is gone, in whatever way, and then what ``guardian_process.py``
says. It is started with the first session, nobody waits for it, and it ends with this process.

A forked child has no part in its parent's guardian, and starts one of its own where it needs it.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Guarded", "ended", "running", "take_problem"]

PROGRAM: Final = Path(__file__).with_name("guardian_process.py")
SEND_BUFFER: Final = 1 << 20
SENT_WITHIN: Final = 1.0
"""Seconds that a message may take where the guardian does not read: it is given up then."""


class Guarded:
    """A session that the guardian says goodbye for, from the first ``update`` until ``drop``."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lease: int | None = None
        self._goodbye: dict[str, Any] = {}

    @property
    def descriptors(self) -> list[int]:
        """Its socket, and its lease where there is one."""
        return [self._sock.fileno()] + ([] if self._lease is None else [self._lease])

    def told(self, key: int) -> dict[str, Any]:
        """The message for the guardian, with which the descriptors go."""
        return {"hold": key, "goodbye": self._goodbye}

    def update(
        self,
        *,
        lease: tuple[int, Path] | None,
        spare_ack: bytes,
        end: bytes,
        goodbye: Sequence[tuple[bytes, bytes]],
    ) -> None:
        """What is to be said from now on: requests in their order, each with what its answer begins with.

        ``lease``: descriptor and path of the session's lease. ``spare_ack``: what frees a handler that waits for an
        acknowledgement. ``end``: what the server expects at the end of each datagram.
        """
        self._lease = None if lease is None else lease[0]
        self._goodbye = {
            "lease": "" if lease is None else str(lease[1].absolute()),
            "spare_ack": spare_ack.hex(),
            "end": end.hex(),
            "requests": [[request.hex(), answer.hex()] for request, answer in goodbye],
        }
        _state.hold(self)

    def drop(self, *, wait: bool = False) -> None:
        """It has left by itself. To be called before its socket is closed.

        ``wait``: return when the guardian has let go of the port, which somebody is to have next.
        """
        _state.drop(self, wait=wait)


class _Guardian:
    """The process, and what it was told, for another one where it has died."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._channel = -1
        """A descriptor, and no socket: it stays open to the very end of this process, which nobody need hear of."""
        self._pid = 0
        self._keys = count(1)
        self._sessions: dict[Guarded, int] = {}
        self._simulators: set[int] = set()
        self.problem = ""

    def hold(self, session: Guarded) -> None:
        with self._lock:
            if session not in self._sessions:
                self._sessions[session] = next(self._keys)
            key = self._sessions[session]
            if self._ready() and not self._send(session.told(key), session.descriptors):
                self._start_again()

    def drop(self, session: Guarded, *, wait: bool) -> None:
        with self._lock:
            key = self._sessions.pop(session, None)
            if key is None or self._channel < 0 or not self._send({"drop": key, "answer": wait}):
                return
            if wait:
                with suppress(OSError), self._open() as channel:
                    channel.recv(16)

    def run(self, pid: int) -> None:
        with self._lock:
            self._simulators.add(pid)
            if self._ready() and not self._send({"run": pid}):
                self._start_again()

    def ended(self, pid: int) -> None:
        with self._lock:
            self._simulators.discard(pid)
            if self._channel >= 0:
                self._send({"ended": pid})

    def forget(self) -> None:
        """In a forked child: the parent's guardian is the parent's."""
        if self._channel >= 0:
            os.close(self._channel)

    def _ready(self) -> bool:
        """Whether there is one, which is started where there is none. False: there can be none."""
        if self._channel < 0:
            self._start()
        return self._channel >= 0

    def _start_again(self) -> None:
        """It has died: another one is told all that this one was."""
        os.close(self._channel)
        self._channel = -1
        with suppress(OSError):
            os.waitpid(self._pid, os.WNOHANG)
        self._start()
        if self._channel >= 0:
            for session, key in self._sessions.items():
                self._send(session.told(key), session.descriptors)
            for pid in self._simulators:
                self._send({"run": pid})

    def _start(self) -> None:
        try:
            self._channel = self._started()
        except OSError as error:
            # No descriptor is left, no program, or the system has no such sockets.
            self.problem = f"{sys.executable or 'no Python'} could not be started: {error.strerror or error}"
        else:
            self.problem = ""

    def _started(self) -> int:
        """The descriptor of our end of the channel to another process."""
        # Isolated and without site-packages: it starts in milliseconds, whatever the environment is like.
        command = [sys.executable, "-I", "-S", str(PROGRAM)]
        nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in range(3)]
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            owner = _descriptor_of_this_process()
            try:
                handed = [theirs.fileno()] + ([] if owner is None else [owner])
                for each in handed:
                    os.set_inheritable(each, True)
                self._pid = os.posix_spawn(
                    sys.executable,
                    command + [str(each) for each in handed],
                    os.environ,
                    file_actions=nowhere,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=(signal.SIGPIPE,),
                )
            finally:
                if owner is not None:
                    os.close(owner)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            return ours.detach()

    def _send(self, message: dict[str, Any], descriptors: Sequence[int] = ()) -> bool:
        """False where it has died."""
        try:
            with self._open() as channel:
                socket.send_fds(channel, [json.dumps(message).encode()], descriptors)
        except OSError:
            return False
        return True

    @contextmanager
    def _open(self) -> Iterator[socket.socket]:
        channel = socket.socket(fileno=self._channel)
        try:
            channel.settimeout(SENT_WITHIN)
            yield channel
        finally:
            channel.detach()


def _descriptor_of_this_process() -> int | None:
    """What becomes readable when this process ends; None where the system has no such thing."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return None


def running(pid: int) -> None:
    """A simulator was launched, as the leader of a process group of its own: it must not outlive this process."""
    _state.run(pid)


def ended(pid: int) -> None:
    """It has ended, or was."""
    _state.ended(pid)


def take_problem() -> str:
    """Why there can be no guardian, told once; empty where there is one, or none was needed so far."""
    problem, _state.problem = _state.problem, ""
    return problem


_state = _Guardian()


def _forget_after_fork() -> None:
    global _state  # noqa: PLW0603  # another thread of the parent may have held its lock
    _state.forget()
    _state = _Guardian()


os.register_at_fork(after_in_child=_forget_after_fork)
