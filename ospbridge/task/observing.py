"""Observations of a scenario: what is selected, in which order and range, and what becomes of what is out of it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.finite import all_finite, mended
from ospbridge.interface import BoxSpace
from ospbridge.task.base import bounds
from ospbridge.task.choosing import choose
from ospbridge.task.outside import Outside
from ospbridge.task.scenario import NotFinite, OutOfRange, Ranges, SourceKind
from ospbridge.task.variables import number_of, source

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, StepOutcome
    from ospbridge.task.outside import Remark
    from ospbridge.task.scenario import Observe
    from ospbridge.toml.tables import Mistakes

__all__ = ["Observer"]

CLIPPED: Final = "clipped (observe.out_of_range = 'clip')"


class Observer:
    """``observe`` makes the observation; ``reason`` then says why the episode must end, or is empty."""

    def __init__(
        self,
        agent: AgentInterface,
        observe: Observe,
        mistakes: Mistakes,
        *,
        bounded: bool,
        remark: Remark,
    ) -> None:
        self.agent = agent.name
        self.reason = ""
        outputs = [value.name for value in agent.outputs]
        infos = [value.name for value in agent.infos]
        chosen = choose(observe.outputs, outputs, "observe.outputs", mistakes, "output")
        chosen_infos = choose(observe.infos, infos, "observe.infos", mistakes, "info")
        self.values = [source(SourceKind.VALUE, name) for name in observe.values]
        self._outputs = None if chosen == list(range(len(outputs))) else np.array(chosen, np.intp)
        self._infos = np.array(chosen_infos, np.intp)
        self._mixed = bool(chosen_infos or self.values)
        announced = [*(agent.outputs[at] for at in chosen), *(agent.infos[at] for at in chosen_infos)]
        self.names = [*(value.name for value in announced), *observe.values]
        if not self.names:
            mistakes.note("observe", "observes nothing", "name outputs, infos or values")
        trusted = observe.ranges is Ranges.ANNOUNCED or (observe.ranges is Ranges.AUTO and bounded)
        low = np.full(len(self.names), -inf, np.float32)
        high = np.full(len(self.names), inf, np.float32)
        known = len(announced)
        low[:known], high[:known] = bounds(announced, bounded=trusted)
        for pattern, given in observe.range.items():
            for at in choose((pattern,), self.names, "observe.range", mistakes, "observed value"):
                low[at], high[at] = given.low, given.high
        self._low, self._high = low, high
        ranged = np.isfinite(low) & np.isfinite(high)
        self._ranged = bool((np.isfinite(low) | np.isfinite(high)).any())
        self._out_of_range = observe.out_of_range if self._ranged else OutOfRange.PASS
        self._not_finite = observe.not_finite
        # Asked in every step, and looking an enumeration's member up costs more than this.
        self._mends = self._not_finite is not NotFinite.PASS
        self._looks = self._out_of_range is OutOfRange.END
        self._remark = remark
        self._cut: Outside | None = None
        """Tells of what is clipped, once."""
        if self._out_of_range is OutOfRange.CLIP:
            self._cut = Outside(self.agent, self.names, low, high, CLIPPED)
        self._clips = self._out_of_range is not OutOfRange.PASS
        self._scale: NDArray[np.float32] | None = None
        self._shift = np.zeros(len(low), np.float32)
        space_low, space_high = low, high
        if observe.scale and ranged.any():
            # The half of each first: the width of the widest range is beyond float32.
            half = np.where(ranged, high / 2 - low / 2, 1.0)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                self._scale = (1.0 / half).astype(np.float32)
                self._shift = np.where(ranged, -(low + half) / half, 0.0).astype(np.float32)
            for at in np.flatnonzero(~np.isfinite(self._scale) | ~np.isfinite(self._shift)).tolist():
                mistakes.note(
                    "observe.scale",
                    f"the range of {self.names[at]!r} is too narrow for a float32: {low[at]:g} to {high[at]:g}",
                )
            space_low, space_high = np.where(ranged, -1.0, low), np.where(ranged, 1.0, high)
        self._bounds = space_low.astype(np.float32), space_high.astype(np.float32)
        changed = self._outputs is not None or self._mixed or self._clips or self._scale is not None
        self.plain = self._mends and not changed and observe.history == 1
        """Outputs that are finite are the observation, as they come."""
        self._history = observe.history
        self._frames = np.zeros((observe.history, len(low)), np.float32)
        self.space = BoxSpace(*(np.tile(bound, observe.history) for bound in self._bounds))

    @property
    def all_names(self) -> list[str]:
        """Names of the numbers of an observation, older frames too: ``/A (-1)`` is ``/A`` a step before."""
        ages = range(self._history - 1, -1, -1)
        return [f"{name} (-{age})" if age else name for age in ages for name in self.names]

    def zeros(self) -> NDArray[np.float32]:
        """The observation of nothing: zeros, within the space."""
        self._frames[:] = np.clip(np.float32(0.0), *self._bounds)
        self.reason = ""
        return self._frames.ravel().copy()

    def first(self, outcome: StepOutcome) -> NDArray[np.float32]:
        """The observation that begins an episode; all its history is this."""
        self._frames[:] = self._frame(outcome)
        return self._frames.ravel().copy()

    def observe(self, outcome: StepOutcome, *, repeated: bool = False) -> NDArray[np.float32]:
        """float32[history * n], oldest first. A repetition of an action replaces the newest frame."""
        frame = self._frame(outcome)
        if self._history == 1:
            return frame
        if not repeated:
            self._frames[:-1] = self._frames[1:]
        self._frames[-1] = frame
        return self._frames.ravel().copy()

    def _frame(self, outcome: StepOutcome) -> NDArray[np.float32]:
        self.reason = ""
        frame = outcome.outputs if self._outputs is None else outcome.outputs[self._outputs]
        if self._mixed:
            variables = np.array([number_of(v, outcome, self.agent) for v in self.values], np.float32)
            frame = np.concatenate((frame, outcome.infos[self._infos], variables))
        if self._mends and not all_finite(frame):
            frame = self._mended(frame)
        if self._looks:
            self._look_at_range(frame)
        elif self._cut is not None and self._cut.possible:
            self._cut.look(frame, self._remark)
        if self._scale is not None:
            frame = frame * self._scale + self._shift
        if self._clips:
            low, high = self._bounds
            frame = np.minimum(np.maximum(frame, low), high)
        return frame

    def _mended(self, frame: NDArray[np.float32]) -> NDArray[np.float32]:
        """What is not finite is no number to learn from: zeros, within the range."""
        good, at = mended(frame, self._low, self._high)
        if self._not_finite is NotFinite.END:
            self.reason = (
                f"{self.names[at]!r} of agent {self.agent!r} is {frame[at]} (observe.not_finite = 'end')"
            )
        return good

    def _look_at_range(self, frame: NDArray[np.float32]) -> None:
        outside = (frame < self._low) | (frame > self._high)
        if not self.reason and outside.any():
            at = int(np.flatnonzero(outside)[0])
            self.reason = (
                f"{self.names[at]!r} of agent {self.agent!r} is {frame[at]:g}, "
                f"its range ends at {self._low[at]:g} and {self._high[at]:g} (observe.out_of_range = 'end')"
            )
