"""The task of an agent without a scenario.

The observation is all outputs, the action all inputs. A simulator that offers infos named ``/episode/reward``,
``/episode/terminated`` and ``/episode/truncated`` scores its episodes itself; without them the reward is 0.0 and
nothing terminates. What becomes of NaN and infinity is as a scenario's key ``not_finite`` has it.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

from ospbridge.finite import all_finite, mended
from ospbridge.interface import Feedback
from ospbridge.task.base import ANY_NUMBER, Task
from ospbridge.task.outside import SELDOM
from ospbridge.task.scenario import NotFinite

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, StepOutcome

__all__ = ["PlainTask"]

REWARD: Final = "/episode/reward"
TERMINATED: Final = "/episode/terminated"
TRUNCATED: Final = "/episode/truncated"


class PlainTask(Task):
    """One agent's task, as the simulator scores it.

    ``not_finite`` says what becomes of NaN and infinity among its outputs, and of such a reward.
    """

    def __init__(
        self, agent: AgentInterface, *, bounded: bool, not_finite: NotFinite = NotFinite.END
    ) -> None:
        super().__init__(agent, bounded=bounded)
        self._mends = not_finite is not NotFinite.PASS
        self._ends = not_finite is NotFinite.END
        self._reason = ""
        """Why the latest observation must end the episode."""
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
        if self._silent and (not self._mends or all_finite(outcome.outputs)):
            self._unlooked += 1
            if self._unlooked >= SELDOM:
                self._look(outcome.outputs)
            return Feedback(outcome.outputs, 0.0, False, False, "", self._info_of(outcome, seed=seed))
        feedback = super().evaluate(outcome, seed=seed)
        reason = self._reason
        if self._mends and not isfinite(feedback.reward):
            reason = reason or self._told(f"the reward of agent {self.agent.name!r}", feedback.reward)
            feedback.reward = 0.0
        if reason and self._ends and not feedback.terminated:
            feedback.truncate(reason)
        return feedback

    def observe(self, outcome: StepOutcome) -> NDArray[np.float32]:
        """All outputs."""
        outputs = outcome.outputs
        self._reason = ""
        if self._mends and not all_finite(outputs):
            space = self.observation_space
            good, at = mended(outputs, space.low, space.high)
            name = self.agent.outputs[at].name
            self._reason = self._told(f"{name!r} of agent {self.agent.name!r}", outputs[at])
            return good
        return outputs

    @staticmethod
    def _told(what: str, number: float) -> str:
        return f"{what} is {number} (not_finite = 'end')"

    def judge(self, outcome: StepOutcome) -> tuple[float, bool, bool]:
        """What the simulator's own infos say."""
        infos = outcome.infos
        return (
            float(infos[self._reward]) if self._reward >= 0 else 0.0,
            bool(self._terminated >= 0 and infos[self._terminated] > 0.5),
            bool(self._truncated >= 0 and infos[self._truncated] > 0.5),
        )
