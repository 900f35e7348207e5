"""The socket that a hub listens at: made where nobody else listens, and made anew where somebody removed its file."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.admission import closed_on_error, squatter
from ospbridge.transport.unix import connect_unix

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HubSocket"]

MODE: Final = 0o660
BACKLOG: Final = 128
TURN_WITHIN: Final = 1.0
"""Seconds that another daemon may take to begin listening in the same directory."""


class HubSocket:
    """A listening socket of mode 0660 at ``path``; the file of one that is dead is replaced.

    Raises ConfigurationError where somebody else listens, or the path cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.socket, self._file = self._open()

    @property
    def stands(self) -> bool:
        """Clients find it: nobody has removed or replaced its file."""
        try:
            return os.path.samestat(self.path.stat(), self._file)
        except OSError:
            return False

    def renew(self) -> None:
        """Listen at a new file of that path. Raises ConfigurationError as making it does, and is as before then."""
        before = self.socket
        self.socket, self._file = self._open()
        before.close()

    def close(self) -> None:
        """Stop listening and remove the file."""
        # In this order: the file of one that does not listen any more may be replaced by another daemon's.
        if self.stands:
            with suppress(OSError):
                self.path.unlink()
        self.socket.close()

    def _open(self) -> tuple[socket.socket, os.stat_result]:
        """A socket that listens, and its file."""
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if (user := squatter(directory)) is not None:
                raise self._unusable(
                    f"{directory} belongs to user {user}, who could listen there in this daemon's place",
                    "set XDG_RUNTIME_DIR to a directory of your own, or ",
                )
            with _turn(directory):
                if self.path.exists():
                    self._make_room()
                return self._listening()
        except OSError as error:
            raise self._unusable(str(error.strerror)) from None

    def _make_room(self) -> None:
        if not self.path.is_socket():
            raise self._unusable("something that is no socket stands there", "remove it, or ")
        if _answers(self.path):
            raise ConfigurationError(
                f"another daemon listens at {self.path}",
                hint="stop it, or give this one a path of its own with --hub unix:PATH",
            )
        self.path.unlink(missing_ok=True)

    def _unusable(self, why: str, hint: str = "") -> ConfigurationError:
        return ConfigurationError(
            f"cannot listen at {self.path}: {why}", hint=f"{hint}choose another path with --hub unix:PATH"
        )

    def _listening(self) -> tuple[socket.socket, os.stat_result]:
        with closed_on_error(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
            sock.setblocking(False)
            # The file gets the socket's mode less the umask: never more than 0660, not even for a moment.
            os.fchmod(sock.fileno(), MODE)
            sock.bind(str(self.path))
            _let_in(self.path)
            sock.listen(BACKLOG)
            return sock, self.path.stat()


@contextmanager
def _turn(directory: Path) -> Iterator[None]:
    """Of daemons that start together, one at a time sees who listens there and begins to."""
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    give_up = time.monotonic() + TURN_WITHIN
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise
                time.sleep(0.01)
        yield
    finally:
        os.close(lock)


def _answers(path: Path) -> bool:
    """Whether somebody listens there; the kernel answers for a daemon that stands still, too."""
    try:
        connect_unix(path).close()
    except OSError as error:
        return error.errno not in {errno.ECONNREFUSED, errno.ENOENT}
    return True


def _let_in(path: Path) -> None:
    """Give a socket's file its mode, but no other file that a link leads to which somebody put in its place."""
    file = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if stat.S_ISSOCK(os.fstat(file).st_mode):
            Path(f"/proc/self/fd/{file}").chmod(MODE)
    finally:
        os.close(file)
