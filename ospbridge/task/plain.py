"""The task of an agent without a scenario.

The observation is all outputs, the action all inputs. A simulator that offers infos named ``/episode/reward``,
``/episode/terminated`` and ``/episode/truncated`` scores its episodes itself; without them the reward is 0.0 and
nothing terminates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.interface import Feedback
from ospbridge.task.base import ANY_NUMBER, Task
from ospbridge.task.outside import SELDOM

if TYPE_CHECKING:
    from ospbridge.interface import AgentInterface, StepOutcome

__all__ = ["PlainTask"]

REWARD: Final = "/episode/reward"
TERMINATED: Final = "/episode/terminated"
TRUNCATED: Final = "/episode/truncated"


class PlainTask(Task):
    """One agent's task, as the simulator scores it."""

    def __init__(self, agent: AgentInterface, *, bounded: bool) -> None:
        super().__init__(agent, bounded=bounded)
        self._reward = self._index(REWARD)
        self._terminated = self._index(TERMINATED)
        self._truncated = self._index(TRUNCATED)
        if type(self) is PlainTask:
            self.as_given = ANY_NUMBER
        self._silent = not agent.infos and type(self) is PlainTask
        """Nothing is told but outputs, and so there is nothing to judge."""

    def _index(self, name: str) -> int:
        return self.info_names.index(name) if name in self.info_names else -1

    def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What a step brought."""
        if not self._silent:
            return super().evaluate(outcome, seed=seed)
        self._unlooked += 1
        if self._unlooked >= SELDOM:
            self._look(outcome.outputs)
        return Feedback(outcome.outputs, 0.0, False, False, "", self._info_of(outcome, seed=seed))

    def judge(self, outcome: StepOutcome) -> tuple[float, bool, bool]:
        """What the simulator's own infos say."""
        infos = outcome.infos
        return (
            float(infos[self._reward]) if self._reward >= 0 else 0.0,
            bool(self._terminated >= 0 and infos[self._terminated] > 0.5),
            bool(self._truncated >= 0 and infos[self._truncated] > 0.5),
        )
