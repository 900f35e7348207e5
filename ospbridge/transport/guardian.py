"""The guardian: a small process that outlives this one by a moment, says goodbye for it, and ends what it launched.

A real server whose datagram meets the closed port of a client that was killed in mid-step never listens to it again,
and keeps its agents for good. So each process with sessions has one guardian, started with the first of them, which
holds duplicates of their sockets, and does what ``guardian_process.py`` says when this process is gone, in whatever
way. A forked child starts one of its own where it needs it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAM: Final = Path(__file__).absolute().with_name("guardian_process.py")
SEND_BUFFER: Final = 1 << 20
SENT_WITHIN: Final = 1.0
"""Seconds that a message may take where the guardian does not read: it is given up then."""


class _Guardian:
    """The process, and all that it was told, for another one where it has died."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.channel = -1
        """A descriptor, and no socket: it stays open to the very end of this process, which nobody need hear of."""
        self._pid = 0
        self._held: dict[str, tuple[dict[str, Any], Sequence[int]]] = {}
        self.problem = ""

    def hold(self, key: str, told: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
        with self._lock:
            self._held[key] = ({"hold": key, **told}, descriptors)
            if self.channel < 0:
                self._start()
            elif not self._send(*self._held[key]):
                os.close(self.channel)
                with suppress(OSError):
                    os.waitpid(self._pid, os.WNOHANG)
                self._start()

    def drop(self, key: str, *, wait: bool = False) -> None:
        with self._lock:
            if self._held.pop(key, None) is None or self.channel < 0:
                return
            if self._send({"drop": key, "answer": wait}) and wait:
                with suppress(OSError), self._open() as channel:
                    channel.recv(16)

    def _start(self) -> None:
        """Tell a new process all that is held; ``problem`` says why there can be none."""
        self.channel, self.problem = -1, ""
        try:
            self.channel = self._started()
        except OSError as error:
            # No descriptor is left, no program, or the system has no such sockets.
            self.problem = f"{sys.executable or 'no Python'} could not be started: {error.strerror or error}"
            return
        for each in self._held.values():
            self._send(*each)

    def _started(self) -> int:
        """The descriptor of our end of the channel to another process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            handed = [theirs.fileno()]
            with suppress(AttributeError, OSError):  # not every kernel has it
                handed.append(os.pidfd_open(os.getpid()))
            try:
                process = subprocess.Popen(  # noqa: S603  # a program of ours
                    # Isolated and without site-packages: it starts in milliseconds, whatever the environment is like.
                    [sys.executable or "", "-I", "-S", str(PROGRAM), *map(str, handed)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # Somebody may want to unmount where we are.
                    cwd="/",
                    pass_fds=handed,
                    start_new_session=True,
                )
            finally:
                for each in handed[1:]:
                    os.close(each)
            # Nobody waits for its end, which is behind ours.
            process.returncode = 0
            self._pid = process.pid
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
        channel = socket.socket(fileno=self.channel)
        try:
            channel.settimeout(SENT_WITHIN)
            yield channel
        finally:
            channel.detach()


def protect(
    sock: socket.socket,
    *,
    lease: tuple[int, Path] | None,
    spare_ack: bytes,
    end: bytes,
    goodbye: Sequence[tuple[bytes, bytes]],
) -> None:
    """What is to be said over a session's socket from now on: requests, each with what its answer begins with.

    ``lease``: descriptor and path of the session's lease. ``spare_ack``: what frees a handler that waits for an
    acknowledgement. ``end``: what the server expects at the end of each datagram.
    """
    told = {
        "lease": "" if lease is None else str(lease[1].absolute()),
        "spare_ack": spare_ack.hex(),
        "end": end.hex(),
        "requests": [[request.hex(), answer.hex()] for request, answer in goodbye],
    }
    descriptors = [sock.fileno()] + ([] if lease is None else [lease[0]])
    _state.hold(f"session {id(sock)}", {"session": told}, descriptors)


def release(sock: socket.socket, *, wait: bool = False) -> None:
    """The session has left by itself. To be called before its socket is closed.

    ``wait``: return when the guardian has let go of the port, which somebody is to have next.
    """
    _state.drop(f"session {id(sock)}", wait=wait)


def running(pid: int) -> None:
    """A simulator was launched, as the leader of a process group of its own: it must not outlive this process."""
    _state.hold(f"simulator {pid}", {"group": pid})


def ended(pid: int) -> None:
    """It has ended, or was."""
    _state.drop(f"simulator {pid}")


def take_problem() -> str:
    """Why there can be no guardian, told once; empty where there is one, or none was needed so far."""
    problem, _state.problem = _state.problem, ""
    return problem


_state = _Guardian()


def _forget_after_fork() -> None:
    """In a forked child: the parent's guardian is the parent's."""
    global _state  # noqa: PLW0603  # another thread of the parent may have held its lock
    if _state.channel >= 0:
        os.close(_state.channel)
    _state = _Guardian()


os.register_at_fork(after_in_child=_forget_after_fork)
