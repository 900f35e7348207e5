"""What the kernel tells of another process: the memory it has, and the processor time it took."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Final

__all__ = ["processor_seconds", "resident"]

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def resident(pid: int | str = "self") -> int:
    """Bytes of memory that a process has at present."""
    return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE


def processor_seconds(pid: int) -> float:
    """What all threads of a running process took so far, by its clock: clock_getcpuclockid(3)."""
    clock = ctypes.c_int()
    refused = ctypes.CDLL(None).clock_getcpuclockid(ctypes.c_int(pid), ctypes.byref(clock))
    if refused:
        raise ProcessLookupError(refused, os.strerror(refused), str(pid))
    return time.clock_gettime(clock.value)
