"""Which core the responder has to itself, while it never sleeps, and that what is measured keeps off it.

Where the kernel is free to put the two on one core it does so in some turns and not in others, and a step is then a
switch between them instead of a wake-up, or waits until the responder has had its share: figures differ by as much as
what is measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["apart", "keep_apart", "processor_seconds", "stay_alone"]


def stay_alone() -> None:
    """This process is the responder: from now on it runs on the last of its cores only."""
    os.sched_setaffinity(0, {_last(os.sched_getaffinity(0))})


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """This thread runs on the other cores meanwhile, where there are any."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, _others(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def keep_apart(pid: int) -> None:
    """The main thread of another process does so from now on. It may have counted its cores before."""
    os.sched_setaffinity(pid, _others(os.sched_getaffinity(0)))


def _last(cores: set[int]) -> int:
    return max(cores)


def _others(cores: set[int]) -> set[int]:
    return cores - {_last(cores)} or cores


def processor_seconds(pid: int) -> float:
    """What all threads of a running process took so far, by its clock: clock_getcpuclockid(3)."""
    clock = ctypes.c_int()
    refused = ctypes.CDLL(None).clock_getcpuclockid(ctypes.c_int(pid), ctypes.byref(clock))
    if refused:
        raise ProcessLookupError(refused, os.strerror(refused), str(pid))
    return time.clock_gettime(clock.value)
