"""Signals that come again and again, as a profiler's do: whoever sleeps for long is told so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["ticking"]


@contextmanager
def ticking(every: float, *, longest: float) -> Iterator[None]:
    """A signal ``every`` so many seconds. Raises AssertionError within what takes longer than ``longest`` seconds."""
    ticks = 0

    def tick(*_: object) -> None:
        nonlocal ticks
        ticks += 1
        assert ticks * every < longest, f"asleep for {longest:g} s"

    before = signal.signal(signal.SIGALRM, tick)
    signal.setitimer(signal.ITIMER_REAL, every, every)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert ticks, "it was over before the first signal"
