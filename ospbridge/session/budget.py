"""How often a lost session may be rebuilt: a bucket that refills slowly, so that no loop goes on for ever.

A simulator that was away, because it died or was started anew, costs nothing: who waits for it runs in no loop. Nor
does a step in doubt since datagrams come twice or late (``attempts``): tries of one reset are counted, and between
resets there are steps.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Budget"]

CAPACITY: Final = 10
SECONDS_EACH: Final = 60.0


class Budget:
    """``capacity`` rebuilds at once, and one more every ``seconds_each``. Time is an argument."""

    def __init__(self, now: float, *, capacity: int = CAPACITY, seconds_each: float = SECONDS_EACH) -> None:
        self.capacity = capacity
        self.seconds_each = seconds_each
        self._left = float(capacity)
        self._counted = now

    def spend(self, now: float) -> bool:
        """Take one; False where none is left."""
        self._left = min(self.capacity, self._left + (now - self._counted) / self.seconds_each)
        self._counted = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def give_back(self) -> None:
        """The latest one was needed because the simulator was away; or an episode has ended by itself."""
        self._left = min(self.capacity, self._left + 1.0)
