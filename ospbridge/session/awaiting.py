"""Waiting for who is not there: a word once that takes a while, and then ever more rarely."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.errors import OspBridgeError

__all__ = ["Awaiting"]

SAID_AFTER: Final = 3.0
"""Seconds: who is back sooner was hardly missed."""
SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until it is said a second time; from then on twice as long each time."""


class Awaiting:
    """A wait of ``wait`` seconds at most, which begins now. ``say(text)`` is called where it is time for a word."""

    def __init__(self, wait: float, say: Callable[[str], object] | None) -> None:
        self._began = monotonic()
        self._wait = wait
        self._say = say
        self._said_at = self._began + SAID_AFTER
        self._silence = SAID_AGAIN_AFTER

    @property
    def waited(self) -> float:
        """Seconds until now."""
        return monotonic() - self._began

    def mention(self, error: OspBridgeError) -> None:
        """It goes on: ``error`` says why."""
        now = monotonic()
        if self._say is None or now < self._said_at:
            return
        self._said_at = now + self._silence
        self._silence *= 2
        left = max(self._began + self._wait - now, 0.0)
        self._say(f"still waiting, for {left:.0f} s at most: {error}")
