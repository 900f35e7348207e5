"""How often a receive is tried before it sleeps, and how many cores there are for that.

With a core to spare, waking a sleeping process costs more than a whole step: on two cores, beside a simulator that
answers at once, a step of an environment takes 18 to 21 us with spinning, and 28 to 31 us without
(``docs/measurements.md``, "A step").

The number of tries adapts: it shrinks while the simulator thinks long, and is zero where there are not cores enough. An
option, ``spin``, turns it off.
"""

from __future__ import annotations

import os
from typing import Final

AGAIN_AFTER: Final = 64
"""After that many sleeps without spinning, spinning gets another chance."""
NEAR_MISS: Final = 100e-6
"""A sleep this short, in seconds, would have been better spent spinning."""
OWN_CORE: Final = "OSPB_OWN_CORE"
"""The variable that says to a launched simulator that the one core it may use is its own: ours then polls there."""
LENT: Final[set[int]] = set()
"""Cores of launched simulators, which this process keeps off."""


class Spinning:
    """The number of tries, adapted by what came of them: ``tries`` before the next sleep, ``most`` at most.

    Say ``paid`` or ``in_vain`` after each receive that spun.

    ``cores``: how many processes take part in a step, each of which needs a core of its own: whoever spins on the core
    that another one needs delays what it waits for.
    """

    __slots__ = ("_sleeps", "most", "tries")

    def __init__(self, most: int, *, enabled: bool = True, cores: int = 2) -> None:
        there = len(os.sched_getaffinity(0) | LENT)
        self.most = most if enabled and there >= cores else 0
        self._sleeps = 0
        self.tries = self.most

    def paid(self) -> None:
        """A datagram came while spinning."""
        if self.tries < self.most:
            self.tries = min(2 * self.tries + 1, self.most)

    def in_vain(self, slept: float = float("inf")) -> None:
        """Nothing came while spinning, and the caller slept for so many seconds."""
        if slept < NEAR_MISS and self.most:
            # A little more would have done: spinning less now would make every later miss self-inflicted.
            self.tries = min(2 * self.tries + 1, self.most)
            return
        if self.tries:
            self.tries //= 2
            return
        self._sleeps += 1
        if self._sleeps >= AGAIN_AFTER:
            self._sleeps = 0
            self.tries = self.most
