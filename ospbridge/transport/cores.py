"""Cores for who takes part in a step: this process, and simulators that run on cores which it leaves alone for them."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["LENT", "cores"]

LENT: Final[set[int]] = set()
"""Cores of launched simulators, which this process keeps off."""


def cores() -> int:
    """How many there are for all of them."""
    return len(os.sched_getaffinity(0) | LENT)
