"""Whether a server hears what it is asked in the middle of a step.

Its handler may throw away whatever else comes until the last completion is acknowledged: what was asked while the
simulator worked is never answered then. Others answer behind the completions. Which kind it is shows where completions
come behind a question; once it is known that they are thrown away, such a question is asked again at once, instead of
after a silence. An answer is taken as it is in any case: never for that to a later question.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospbridge.osp.step.under_way import StepUnderWay

__all__ = ["Attention", "Question"]

THROWN_AWAY: Final = 2
"""Questions in a row, since one that gets lost on its way looks the same."""


class Attention:
    """Of one server."""

    __slots__ = ("_thrown_away", "step")

    def __init__(self) -> None:
        self.step: StepUnderWay | None = None
        """In the middle of which questions are asked now."""
        self._thrown_away = 0

    @property
    def lacking(self) -> bool:
        """Questions in the middle of a step are thrown away, for all that can be seen."""
        return self._thrown_away >= THROWN_AWAY

    def shown(self) -> None:
        """One was answered behind the completions."""
        self._thrown_away = 0

    def missed(self) -> None:
        """One was answered only when it was asked again behind them."""
        self._thrown_away += 1


class Question:
    """One that is asked until it is answered."""

    __slots__ = ("_attention", "_behind", "_step")

    def __init__(self, attention: Attention) -> None:
        step = attention.step
        self._attention = attention
        self._step = None if step is None or step.finished else step
        """Which was not completed when it was asked first."""
        self._behind = False
        """It was asked again when that was completed."""

    @property
    def overtaken(self) -> bool:
        """The completions came behind it, and no answer will: it is time to ask again."""
        step = self._step
        return step is not None and self._attention.lacking and not self._behind and step.finished

    def asked(self) -> None:
        """It goes out, for the first time or once more."""
        self._behind = self._step is not None and self._step.finished

    def answered(self) -> None:
        """Learn from it."""
        step = self._step
        if step is None or not step.finished:
            return
        if self._behind:
            self._attention.missed()
        else:
            self._attention.shown()
