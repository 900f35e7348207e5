"""What the kernel tells of a process: to see that nothing piles up in it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int | str = "self") -> int:
    """How many are open; of this process one more, for the look itself."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def threads(pid: int | str = "self") -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def resident(pid: int | str = "self") -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
