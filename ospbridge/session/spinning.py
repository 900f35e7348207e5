"""How often a receive is tried before it sleeps.

With a core to spare, waking a sleeping process costs more than a whole step. The number of tries adapts: it shrinks
while the simulator thinks long, and is zero on a single core.
"""

from __future__ import annotations

import os
from typing import Final

__all__ = ["Spinning"]

AGAIN_AFTER: Final = 64
"""After that many sleeps without spinning, spinning gets another chance."""


class Spinning:
    """The number of tries, adapted by what came of them."""

    __slots__ = ("_most", "_sleeps", "tries")

    def __init__(self, most: int, *, enabled: bool = True) -> None:
        self._most = most if enabled and len(os.sched_getaffinity(0)) > 1 else 0
        self._sleeps = 0
        self.tries = self._most

    def paid(self) -> None:
        """A datagram came while spinning."""
        if self.tries < self._most:
            self.tries = min(2 * self.tries + 1, self._most)

    def in_vain(self) -> None:
        """Nothing came: the caller goes to sleep."""
        if self.tries:
            self.tries //= 2
            return
        self._sleeps += 1
        if self._sleeps >= AGAIN_AFTER:
            self._sleeps = 0
            self.tries = self._most
