"""What counters mean over time: how much more of something there is a second, and how long most of it takes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SPANS", "Window", "quantile", "sparkline"]

SPANS: Final = (1.0, 10.0, 60.0)
"""Seconds."""
BARS: Final = "▁▂▃▄▅▆▇█"
PLAIN_BARS: Final = "_.-=+*#@"


class Window:
    """Looks at counters that only grow, as far back as the longest span. A counter that falls has begun anew."""

    def __init__(self, longest: float = SPANS[-1]) -> None:
        self._longest = longest
        self._seen: deque[tuple[float, tuple[float, ...]]] = deque()

    def look(self, now: float, counts: Sequence[float]) -> None:
        """What they are now."""
        seen = self._seen
        counts = tuple(counts)
        if seen and (
            len(counts) != len(seen[-1][1]) or any(a < b for a, b in zip(counts, seen[-1][1], strict=True))
        ):
            seen.clear()
        seen.append((now, counts))
        # One that is older than the span stays, so that the span is covered.
        while len(seen) > 2 and seen[1][0] <= now - self._longest:
            seen.popleft()

    def gained(self, span: float) -> tuple[float, tuple[float, ...]] | None:
        """Seconds, at least ``span`` where so much is known, and what was added in them; None before two looks."""
        seen = self._seen
        if len(seen) < 2:
            return None
        now, latest = seen[-1]
        at = len(seen) - 2
        # Looks are never quite a span apart: one that is almost as old will do.
        while at > 0 and now - seen[at][0] < 0.9 * span:
            at -= 1
        began, counts = seen[at]
        return now - began, tuple(new - old for new, old in zip(latest, counts, strict=True))

    def rate(self, span: float, at: int = 0) -> float | None:
        """Of one counter, a second."""
        gained = self.gained(span)
        if gained is None or gained[0] <= 0:
            return None
        return gained[1][at] / gained[0]


def quantile(share: float, counts: Sequence[float], bounds: Sequence[float]) -> float | None:
    """The value that ``share`` of what was counted does not exceed, read off a histogram.

    ``counts`` has one more than ``bounds``: what exceeds them all, of which no more is known than that. None where
    nothing was counted.
    """
    total = sum(counts)
    if total <= 0:
        return None
    left = share * total
    low = 0.0
    for count, high in zip(counts, bounds, strict=False):
        if count and left <= count:
            return low + (high - low) * left / count
        left -= count
        low = high
    return bounds[-1]


def sparkline(values: Sequence[float], width: int, *, plain: bool = False) -> str:
    """The latest values as bars between the least and the largest of them; finite ones only."""
    bars = PLAIN_BARS if plain else BARS
    shown = [value for value in values[-width:] if value - value == 0]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((value - low) * scale)] if scale else bars[0] for value in shown)
