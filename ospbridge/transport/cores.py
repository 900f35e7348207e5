"""Cores for who takes part in a step: this process, and simulators that run on cores which it leaves alone for them."""

from __future__ import annotations

import os
from typing import Final

__all__ = ["LENT", "OWN_CORE", "cores"]

OWN_CORE: Final = "OSPB_OWN_CORE"
"""The variable that says to a launched simulator that the one core it may use is its own: ours then polls there."""
LENT: Final[set[int]] = set()
"""Cores of launched simulators, which this process keeps off."""


def cores() -> int:
    """How many there are for all of them."""
    return len(os.sched_getaffinity(0) | LENT)
