"""The simulator's own clock as a counter of steps.

OSP numbers nothing; ``/Simulation/SimulationTime`` advances by a fixed amount a step and is zeroed by a reset, and so
also by a very first step before any reset (observed on a NERD server). What it shows after a step is therefore
compared with what it must have shown before, by "differs", never by "greater".
"""

from __future__ import annotations

from enum import Enum
from math import isfinite
from typing import Final

from ospbridge.osp.number_text import with_point

__all__ = ["ITERATIONS", "SIMULATION_TIME", "TIME_STEP_SIZE", "Moved", "StepClock"]

UNEVEN: Final = 0.25
"""Of a step: clocks print few digits, and steps may be small."""
EXACT: Final = 0.01
"""Of a step: so near do all steps of a clock come that counts them."""
SIMULATION_TIME: Final = "/Simulation/SimulationTime"
TIME_STEP_SIZE: Final = "/Simulation/TimeStepSize"
ITERATIONS: Final = "/Simulation/IterationsPerStep"
"""Steps of that size that the world makes with each step of the barrier."""


class Moved(Enum):
    """What the clock says about the step in question."""

    NO = "the step did not run"
    ONCE = "the step ran once"
    OTHERWISE = "more or other than this step ran"
    UNKNOWN = "this simulator has no clock to read"


class StepClock:
    """What is known of the simulator's time: its value at ``base``, seconds a step, steps believed since."""

    __slots__ = (
        "audited",
        "base",
        "before",
        "count",
        "decimals",
        "known",
        "outlasts_resets",
        "resolution",
        "runs_free",
        "size",
        "usual",
        "value_id",
        "zeroed",
        "zeroes",
    )

    def __init__(self) -> None:
        self.value_id: int | None = None
        """Local id of the variable, which may be 0; None where the simulator has none."""
        self.known = False
        """Whether the variable was looked for in this session."""
        self.base: float | None = None
        self.size: float | None = None
        self.count = 0
        self.before = 0
        """Steps believed before the base."""
        self.audited = 0
        """So many of the steps were believed when they were last compared with what it shows, or needed not to be."""
        self.usual: float | None = None
        """Seconds a step in the episode before, while nobody of ours has set a variable since."""
        self.decimals = 0
        """How many it prints always; 0 while that is not known."""
        self.resolution = 0.0
        """Seconds by which the latest text may be rounded."""
        self.zeroed = False
        """The latest reset of this session left it at 0."""
        self.zeroes = False
        """A reset of this session took it back to 0: it has not just stood there, as one of a fresh simulator does."""
        self.outlasts_resets = False
        """Resets were seen not to zero it: it tells nothing of them."""
        self.runs_free = False
        """It moved before the latest reset, though no step was under way: some worlds do until the first one."""

    @property
    def available(self) -> bool:
        return self.value_id is not None

    @property
    def missing(self) -> bool:
        """It was looked for, and this simulator has none."""
        return self.known and self.value_id is None

    @property
    def steps(self) -> int:
        """All that were believed in this session."""
        return self.before + self.count

    def give_up(self) -> None:
        """It does not follow the steps: as if there were none."""
        self.unlearn()
        self.value_id = None

    def forget(self) -> None:
        """The base is not valid any more: a reset, or a variable that was set."""
        self.usual = self.size or self.usual
        self.base = None
        self._count_anew()

    def unlearn(self) -> None:
        """Neither is the step size: a variable may have changed it."""
        self.forget()
        self.usual = None

    def start(self, time: float) -> None:
        """``time`` is what the clock shows while nothing is under way."""
        self.base = time
        self._count_anew()

    def _count_anew(self) -> None:
        self.size = None
        self.before += self.count
        self.count = self.audited = 0

    def settle(self) -> None:
        """The steps so far only began an episode: in that nothing was done yet that could be in doubt."""
        self.audited = self.count

    def steps_shown(self, time: float) -> int | None:
        """How many steps ``time`` is away from the base; None while the step size is not known.

        -1 where it is no whole number of them: then the step that the size was learned from was not one.
        """
        if self.base is None or not self.size:
            return None
        steps = (time - self.base) / self.size
        if not isfinite(steps):
            return None
        return round(steps) if abs(steps - round(steps)) < UNEVEN else -1

    def went_back(self, time: float) -> bool:
        """Whether it has shown more already: only a reset takes it back, so ``time`` may be an old answer."""
        if self.base is None or not self.size:
            return False
        return (time - self.base) / self.size < self.count - UNEVEN

    def ran_ahead(self, time: float) -> bool:
        """Whether no next step brings it there: that may be an old answer of the episode before."""
        shown = self.steps_shown(time)
        return shown is not None and shown not in (self.count, self.count + 1)

    @property
    def tells_resets(self) -> bool:
        """Where it stands behind the next step says whether the world was reset before that."""
        return self.size is not None and self.zeroed and self.zeroes and self.count > 1

    def would_learn(self, time: float) -> bool:
        """Whether a first step that brought it to ``time`` would tell how long steps take."""
        return self.size is None and self.base is not None and time != self.base

    def goes_its_own_way(self, time: float) -> bool:
        """Whether ``time`` is no number of steps at all, or what few digits may make of ``count`` of them.

        Once it is known how long a step takes.
        """
        assert self.base is not None
        assert self.size
        steps = (time - self.base) / self.size
        if not isfinite(steps) or abs(steps - round(steps)) > EXACT:
            return True
        return abs(time - self.base - self.count * self.size) <= (self.count + 1) * self.resolution

    def judge(self, time: float) -> Moved:
        """What ``time`` says about the step after the ``count`` steps believed so far."""
        if self.base is None:
            return Moved.UNKNOWN
        shown = self.steps_shown(time)
        if shown is None:
            if time == self.base:
                return Moved.NO
            return Moved.OTHERWISE if self._several(time) else Moved.ONCE
        if shown == self.count:
            return Moved.NO
        return Moved.ONCE if shown == self.count + 1 else Moved.OTHERWISE

    def as_usual(self, time: float) -> bool:
        """Whether the first step took as long as each one of the episode before, and not two of them."""
        return self.usual is not None and self.took(time, self.usual)

    def took(self, time: float, size: float) -> bool:
        """Whether ``size`` seconds have passed since the base, and not twice as many.

        Clocks of few digits cannot tell.
        """
        if self.base is None or self.resolution > UNEVEN * size:
            return False
        return abs(time - self.base - size) <= EXACT * size + self.resolution

    def _several(self, time: float) -> bool:
        """Whether the first step took as long as several steps of the episode before."""
        if self.base is None or self.usual is None or self.size is not None:
            return False
        steps = (time - self.base) / self.usual
        rounded = time - self.base - self.usual <= self.resolution
        several = steps > 1.5 and not rounded and abs(steps - round(min(steps, 1e9))) < 1e-3
        if several:
            # Said once: somebody else may have changed the step size.
            self.usual = None
        return several

    def believe(self, time: float | None) -> None:
        """One more step ran; ``time`` is what the clock shows now, where it was read."""
        self.count += 1
        if time is None or self.size is not None or self.base is None:
            return
        size = (time - self.base) / self.count
        if size > 0:
            self.size = size
        else:
            # The very first step zeroed the clock.
            self.start(time)

    def read(self, text: str) -> float:
        """The time that a text shows; NaN where it is no number. Notes how many digits it has."""
        text = with_point(text)
        try:
            time = float(text)
        except ValueError:
            return float("nan")
        mantissa, exponent, _ = text.strip().lower().partition("e")
        decimals = len(mantissa.partition(".")[2])
        if decimals > 1 and mantissa.endswith("0") and not exponent:
            # Who prints as many as needed prints no zero there.
            self.decimals = decimals
        rounded = decimals == self.decimals > 0 and not exponent
        self.resolution = 10.0**-decimals if rounded else 0.0
        return time
