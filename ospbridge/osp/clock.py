"""The simulator's own clock as a counter of steps.

OSP numbers nothing. ``/Simulation/SimulationTime`` advances by TimeStepSize x IterationsPerStep with each step, and a
reset zeroes it (observed on a NERD server), so that elapsed time over the size of a step is the number of steps that
ran. A clock that does not count steps so is not used at all: nothing is repaired or audited by it then.
"""

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import Final

__all__ = ["Moved", "StepClock"]

TOLERANCE: Final = 0.25
"""Of a step: how far a reading may be from a whole number of steps."""


EXACT: Final = 0.01
"""The same of a number that is not expected: an uneven clock, or one of few digits, comes by it now and then."""


class Moved(Enum):
    """What the clock says about the pending step."""

    NO = "no step more"
    ONCE = "one step more"
    OTHERWISE = "something other than one step"
    UNKNOWN = "nothing"


class StepClock:
    """What is known of the simulator's time. All times in simulated seconds."""

    def __init__(self) -> None:
        self.value_id: int | None = None
        """Local id of the variable, which may be 0; None until it is found."""
        self.missing = False
        """The simulator has no clock that counts steps."""
        self.announced: float | None = None
        """TimeStepSize x IterationsPerStep, where the simulator has both."""
        self.size: float | None = None
        """Of a step, once a step has confirmed it."""
        self.base: float | None = None
        """What the clock showed when ``count`` was 0; None where that is not known."""
        self.count = 0
        """Steps believed since then."""
        self.earlier = 0
        """Steps of this session believed before ``base``."""
        self.latest: float | None = None
        """What the clock showed last, while the size is not confirmed."""

    @property
    def steps(self) -> int:
        """All steps that were believed in this session."""
        return self.earlier + self.count

    @property
    def ready(self) -> bool:
        """Steps need no reading of the clock: its size is confirmed, or there is none."""
        return self.missing or self.size is not None

    def start(self, time: float | None) -> None:
        """``time`` is what the clock shows while no step is pending; None: that is not known any more."""
        self.base = self.latest = time
        self.earlier += self.count
        self.count = 0

    def steps_shown(self, time: float) -> int | None:
        """How many steps the clock shows since ``base``; None where that is no whole number, or cannot be said."""
        if self.base is None or not self.size:
            return None
        steps = (time - self.base) / self.size
        if not isfinite(steps):
            return None
        nearest = round(steps)
        expected = nearest in (self.count, self.count + 1)
        return nearest if abs(steps - nearest) <= (TOLERANCE if expected else EXACT) else None

    def judge(self, time: float | None) -> Moved:
        """What ``time`` says about the step that follows the ``count`` steps believed so far."""
        if time is None or self.base is None or self.missing:
            return Moved.UNKNOWN
        if self.size is None:
            return Moved.NO if time == self.latest else Moved.ONCE
        shown = self.steps_shown(time)
        if shown == self.count:
            return Moved.NO
        return Moved.ONCE if shown == self.count + 1 else Moved.OTHERWISE

    def confirm(self, time: float) -> bool:
        """Learn from ``time``, read after a step, while the size is not confirmed. False where the steps are uneven.

        Two steps must agree where the simulator's own word for the size does not hold.
        """
        if self.size is not None or self.base is None or self.latest is None:
            return True
        took = time - self.latest
        if took < 0:
            # The very first step of a world resets it, and the clock with it.
            self.start(time)
            return True
        if self.announced and abs(took - self.announced) <= TOLERANCE * self.announced:
            self.size = self.announced
        elif took > 0 and self.count > 1:
            average = (time - self.base) / self.count
            if abs(took - average) > TOLERANCE * average:
                return False
            self.size = average
        self.latest = time
        return took > 0
