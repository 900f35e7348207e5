"""Leaving a connection to a process of its own, which reads what is still due on it and then closes it.

Some servers do not survive a connection that is reset before they have delivered what they owe, and what they owe may
take them minutes. A program that must end does not wait for that.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final

__all__ = ["QUIET", "linger"]

QUIET: Final = 1.0
"""Seconds without another byte after which what came was all."""
_running: Final[list[int]] = []
"""Processes that were started here and may not have ended."""
_READER: Final = """
import os, select, sys, time
descriptor, wait, quiet = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
until = time.monotonic() + wait
looking = select.poll()
looking.register(descriptor, select.POLLIN)
while (left := until - time.monotonic()) > 0 and looking.poll(1000 * min(wait, left)) and os.read(descriptor, 1 << 20):
    wait = quiet
"""


def linger(descriptor: int, seconds: float) -> None:
    """Read a socket elsewhere, until it is quiet behind what came; ours may be closed then, but not shut down.

    For ``seconds`` at most, whether nothing comes or no end of it. What is read is thrown away. Where no process can be
    started, nobody reads.
    """
    _running[:] = [process for process in _running if not _ended(process)]
    # Isolated and without site-packages: it starts in milliseconds, whatever the environment is like.
    command = [sys.executable, "-I", "-S", "-c", _READER, str(descriptor), f"{seconds:g}", f"{QUIET:g}"]
    nowhere = [(os.POSIX_SPAWN_OPEN, each, os.devnull, os.O_RDWR, 0) for each in range(3)]
    with suppress(OSError):
        os.set_inheritable(descriptor, True)
        # Nobody waits for its end: this process may be about to end itself.
        _running.append(
            os.posix_spawn(sys.executable, command, os.environ, file_actions=nowhere, setsid=True)
        )


def _ended(process: int) -> bool:
    """Whether it is over; the system forgets it then."""
    try:
        return os.waitpid(process, os.WNOHANG)[0] != 0
    except ChildProcessError:
        # Somebody else waited for it, or it is the parent's.
        return True
