"""Saying rarely what happens again and again."""

from __future__ import annotations

from time import monotonic
from typing import Final

__all__ = ["SAID_AGAIN_AFTER", "Sparing"]

SAID_AGAIN_AFTER: Final = 60.0
"""Seconds until the same trouble is logged a second time."""


class Sparing:
    """How often to log one kind of trouble."""

    def __init__(self) -> None:
        self._next = 0.0

    def due(self) -> bool:
        """Whether to say it now; it counts as said then."""
        now = monotonic()
        if now < self._next:
            return False
        self._next = now + SAID_AGAIN_AFTER
        return True
