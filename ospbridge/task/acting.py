"""Actions of a scenario: continuous ones and choices, as inputs of the simulator within their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.errors import LocalProtocolError
from ospbridge.interface import BoxSpace, DiscreteSpace
from ospbridge.task.base import ANY_NUMBER, FLOAT, bounds, choice, finite, vector
from ospbridge.task.choosing import choose, spread
from ospbridge.task.scenario import ActionKind, OutOfBounds
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, Space
    from ospbridge.task.scenario import Action
    from ospbridge.toml.tables import Mistakes, PerValue

__all__ = ["Actor"]

FEW: Final = 12


class Actor:
    """``given`` is float32[n_inputs]: what the agent was last told. What does not fit is noted in ``mistakes``.

    An action is ``taken`` with the step it brings: others of that step may be refused, and the action with them.
    """

    def __init__(
        self, agent: AgentInterface, action: Action, neutral: NDArray[np.float32], mistakes: Mistakes
    ) -> None:
        self._agent = agent.name
        self._neutral = neutral
        self.given = self._asked = neutral
        names = [value.name for value in agent.inputs]
        places = choose(action.inputs, names, "action.inputs", mistakes, "input")
        self.names = [names[at] for at in places]
        chosen = np.array(places, np.intp)
        self._chosen = None if places == list(range(len(names))) else chosen
        self._action = action
        self._mistakes = mistakes
        low, high = bounds(agent.inputs, bounded=True)
        self._low = self._spread(action.low, low[chosen], "low")
        self._high = self._spread(action.high, high[chosen], "high")
        for at, name in enumerate(self.names):
            if self._low[at] >= self._high[at]:
                mistakes.note("action.low", f"is not below high for input {name!r}")
        unlimited = np.full(len(chosen), np.inf, np.float32)
        self._rate = None if action.rate is None else self._spread(action.rate, unlimited, "rate")
        self._strict = action.out_of_bounds is OutOfBounds.ERROR
        self._normalised = action.normalised
        self._table: NDArray[np.float32] | None = None
        self._half = self._middle = unlimited
        self.space: Space = self._discrete() if action.kind is ActionKind.DISCRETE else self._continuous()
        self._bounds = (
            (self.space.low, self.space.high)
            if isinstance(self.space, BoxSpace) and action.out_of_bounds is not OutOfBounds.PASS
            else None
        )
        self._inmost: tuple[float, float] | None = None
        """Numbers between these are within the bounds of every input; None where there are many to compare."""
        if self._bounds is not None and 0 < len(self.names) <= FEW:
            self._inmost = float(self._bounds[0].max()), float(self._bounds[1].min())
        self.remembers = False
        """Whether ``given`` is looked at: then it must not be an array that the caller may write to."""

    def _spread(self, given: PerValue | None, default: NDArray[np.float32], key: str) -> NDArray[np.float32]:
        if given is None:
            return default
        return np.array(
            spread(given, self.names, default.tolist(), f"action.{key}", self._mistakes), np.float32
        )

    def _discrete(self) -> DiscreteSpace:
        rows = self._action.choices
        if rows and len(rows[0]) != len(self.names):
            self._mistakes.note(
                "action.choices",
                f"expected {pluralize(len(self.names), 'input')} a choice, got {len(rows[0])}",
                f"one for each of {', '.join(self.names)}",
            )
            return DiscreteSpace(len(rows))
        table = np.tile(self._neutral, (len(rows), 1))
        table[:, slice(None) if self._chosen is None else self._chosen] = rows
        self._table = table
        return DiscreteSpace(len(rows))

    def _continuous(self) -> BoxSpace:
        if not self._action.normalised:
            return BoxSpace(self._low, self._high)
        open_ended = [
            name
            for name, low, high in zip(self.names, self._low, self._high, strict=True)
            if not (np.isfinite(low) and np.isfinite(high))
        ]
        if open_ended:
            self._mistakes.note(
                "action.normalised",
                f"input {open_ended[0]!r} has no finite range",
                "give action.low and action.high",
            )
            return BoxSpace(self._low, self._high)
        # The half of each first: the width of the widest range is beyond float32.
        self._half = self._high * np.float32(0.5) - self._low * np.float32(0.5)
        self._middle = self._low + self._half
        ones = np.ones(len(self.names), np.float32)
        return BoxSpace(-ones, ones)

    def restart(self) -> None:
        """An episode begins at neutral."""
        self.given = self._asked = self._neutral

    @property
    def minds(self) -> bool:
        """Whether ``taken`` must be called."""
        return self.remembers or self._rate is not None

    def taken(self) -> None:
        """The step ran that the latest action was for, once or again."""
        self.given = self._asked

    def inputs(self, action: Any) -> NDArray[np.float32]:
        """float32[n_inputs] for an action. Raises LocalProtocolError for what is no action."""
        if self._table is not None:
            wanted: NDArray[np.float32] = self._table[choice(action, len(self._table), self._agent)]
            if self._rate is not None:
                wanted = self._full(self._slowed(self._part(wanted), self._rate))
        else:
            wanted = vector(action, len(self.names), self._agent)
            if self._bounds is not None and not self._surely_inside(wanted):
                wanted = self._bound(wanted, *self._bounds)
            if self._normalised:
                wanted = wanted * self._half + self._middle
            if self._rate is not None:
                wanted = self._slowed(wanted, self._rate)
            if self._chosen is not None:
                wanted = self._full(wanted)
        self._asked = wanted.copy() if self.remembers else wanted
        return wanted

    def _surely_inside(self, wanted: NDArray[np.float32]) -> bool:
        """Plain Python tells it sooner than numpy clips a few numbers. NaN that is overlooked would not be clipped."""
        if self._inmost is None:
            return False
        numbers = wanted.tolist()
        return bool(self._inmost[0] <= min(numbers) and max(numbers) <= self._inmost[1])

    @property
    def _gives(self) -> bool:
        """Nothing of an action within its bounds must be changed, or kept, to be told."""
        changes = self._table is not None or self._normalised or self._rate is not None or self.remembers
        return not changes and self._chosen is None

    @property
    def as_given(self) -> tuple[float, float] | None:
        """As ``Task.as_given``. To be asked for once all that is looked at is known."""
        if not self._gives:
            return None
        if self._bounds is None or not self.names:
            return ANY_NUMBER
        return float(self._bounds[0].max()), float(self._bounds[1].min())

    @property
    def way(self) -> Callable[[Any], NDArray[np.float32]]:
        """``inputs``, or what does the same sooner where nothing of an action must be changed to be told.

        To be asked for once all that is looked at is known.
        """
        if not self._gives or self._bounds is None or self._inmost is None:
            return self.inputs
        lowest, highest = self._inmost
        low, high = self._bounds
        count, agent, bound = len(self.names), self._agent, self._bound
        shape = (count,)

        def inputs(action: Any) -> NDArray[np.float32]:
            plain = type(action) is np.ndarray and action.dtype is FLOAT and action.shape == shape
            wanted = action if plain else vector(action, count, agent)
            numbers = wanted.tolist()
            if lowest <= min(numbers) and max(numbers) <= highest:
                return wanted
            return bound(wanted, low, high)

        return inputs

    def _bound(
        self, wanted: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        # NaN passes both, and is refused where the step is sent.
        inside: NDArray[np.float32] = np.minimum(np.maximum(wanted, low), high)
        if self._strict and not np.array_equal(inside, wanted, equal_nan=True):
            at = int(np.flatnonzero(inside != wanted)[0])
            raise LocalProtocolError(
                f"an action of agent {self._agent!r} gives input {self.names[at]!r} {wanted[at]}, "
                f"its bounds are {low[at]} and {high[at]}",
                hint="clip it, or set action.out_of_bounds = 'clip' in the scenario",
            )
        return inside

    def _part(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return inputs if self._chosen is None else inputs[self._chosen]

    def _full(self, part: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._chosen is None:
            return part
        inputs = self._neutral.copy()
        inputs[self._chosen] = part
        return inputs

    def _slowed(self, wanted: NDArray[np.float32], rate: NDArray[np.float32]) -> NDArray[np.float32]:
        """Within the rate of change from what was given before."""
        before = self._part(self.given)
        slowed: NDArray[np.float32] = np.minimum(np.maximum(wanted, before - rate), before + rate)
        finite(slowed, self._agent)
        return slowed
