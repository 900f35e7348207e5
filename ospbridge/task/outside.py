"""Numbers outside their range, told once: users are to know where a space or a policy does not fit the sensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["SELDOM", "Outside", "Remark", "unheard"]

SELDOM: Final = 50
"""Steps between two looks at observations that nobody changes: a look takes a fifth of a step."""
SHOWN: Final = 3
"""Names, of all that are outside."""
ROUNDING: Final = 1e-6
"""Of the width of a range: so far beyond it is where float32 puts what was at its end."""
ABOUT: Final = "ranges"
"""One session tells of one agent; what is wrong with the others' sensors is the same."""


class Remark(Protocol):
    """Takes what users should know, once of what it is about."""

    def __call__(self, text: str, *, about: str = "") -> None: ...


def unheard(text: str, *, about: str = "") -> None:
    """Of a task that no session has asked yet."""


class Outside:
    """Which of an agent's numbers have left their ranges: ``low`` and ``high`` are float32[n], as the numbers are.

    ``consequence`` says what then became of them, and what to do.
    """

    def __init__(
        self,
        agent: str,
        names: Sequence[str],
        low: NDArray[np.float32],
        high: NDArray[np.float32],
        consequence: str,
    ) -> None:
        self._agent = agent
        self._names = names
        self._consequence = consequence
        self._ends = low, high
        with np.errstate(invalid="ignore", over="ignore"):
            width = np.where(np.isfinite(low) & np.isfinite(high), high / 2 - low / 2, 0.0)
            room = (2 * ROUNDING * width).astype(np.float32)
            self._low, self._high = low - room, high + room
        self.possible = bool((np.isfinite(low) | np.isfinite(high)).any())
        """Something has a range, and nobody was told yet."""

    def look(self, numbers: NDArray[np.float32], remark: Remark) -> None:
        """Tell of those that are outside, where there are any."""
        outside = (numbers < self._low) | (numbers > self._high)
        if not outside.any():
            return
        self.possible = False
        first, *others = np.flatnonzero(outside).tolist()
        low, high = (end[first] for end in self._ends)
        also = ", ".join(map(self._name, others[: SHOWN - 1]))
        more = f" and {len(others) - SHOWN + 1} more" if len(others) >= SHOWN else ""
        remark(
            f"{self._name(first)} of agent {self._agent!r} is {numbers[first]:g}, outside its range from {low:g} to "
            f"{high:g}{f' (also {also}{more})' if also else ''}: {self._consequence}",
            about=ABOUT,
        )

    def _name(self, at: int) -> str:
        """A class of a user may observe more than it names."""
        return repr(self._names[at]) if at < len(self._names) else f"number {at} of the observation"
