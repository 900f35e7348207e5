"""Files that one program writes line by line, from its beginning: who comes second is refused, and nothing is lost."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from typing import BinaryIO, Final

__all__ = ["begun", "ended", "why_not"]

MODE: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
"""O_APPEND: whoever rotates logs may cut the file down while it is written; what follows stands at its end then.
O_NONBLOCK: a pipe that nobody reads is refused, instead of waited for."""


def begun(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, empty and without a buffer, until ``ended``. Raises OSError, also where it is being written already."""
    descriptor = os.open(path, MODE, 0o666)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            _claim(descriptor)
            os.ftruncate(descriptor, 0)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "wb", buffering=0)


def ended(file: BinaryIO) -> None:
    """Close it. Anybody may begin it again, even where a forked child has it open still."""
    if not file.closed:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def why_not(error: OSError) -> str:
    """Why it could not be begun, in words."""
    if isinstance(error, BlockingIOError):
        return "it is being written already"
    return "it is a pipe that nobody reads" if error.errno == errno.ENXIO else str(error.strerror)


def _claim(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:
        pass  # a file system without locks
