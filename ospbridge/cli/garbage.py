"""Python's collector of reference cycles, in programs that run for days and step thousands of times a second."""

from __future__ import annotations

import gc
from typing import Final

__all__ = ["collect_seldom"]

AFTER: Final = 20_000
"""Objects that may be made, and not freed, until it looks through them: Python's own 700 are there after a few steps of
many agents, or a fraction of an episode, and hardly any of them is garbage."""


def collect_seldom() -> None:
    """Have it look after more new objects, and never again at what is there by now: the modules and their code."""
    gc.collect()
    gc.freeze()
    _, *others = gc.get_threshold()
    gc.set_threshold(AFTER, *others)
