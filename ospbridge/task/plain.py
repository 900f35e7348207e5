"""The task of an agent without a scenario.

The observation is all outputs, the action all inputs. A simulator that offers infos named ``/episode/reward``,
``/episode/terminated`` and ``/episode/truncated`` scores its episodes itself; without them the reward is 0.0 and
nothing terminates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.interface import Feedback

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, StepOutcome

__all__ = ["PlainTask"]

REWARD: Final = "/episode/reward"
TERMINATED: Final = "/episode/terminated"
TRUNCATED: Final = "/episode/truncated"


class PlainTask:
    """One agent's task. ``bounded`` says whether outputs stay in their announced ranges (Profile.outputs_normalised).

    ``low`` and ``high`` are float32[n_outputs], the bounds of observations; ``neutral`` is float32[n_inputs]: 0,
    clipped into each input's range.
    """

    def __init__(self, agent: AgentInterface, *, bounded: bool) -> None:
        self.agent = agent
        self.low, self.high = _bounds([(v.min, v.max) for v in agent.outputs], bounded=bounded)
        self.action_low, self.action_high = _bounds([(v.min, v.max) for v in agent.inputs], bounded=True)
        self.neutral = np.clip(np.zeros(len(agent.inputs), np.float32), self.action_low, self.action_high)
        names = [value.name for value in agent.infos]
        self._info_names = names
        self._reward = _index(names, REWARD)
        self._terminated = _index(names, TERMINATED)
        self._truncated = _index(names, TRUNCATED)

    def begin(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What the neutral step after a reset brought; flags of that step end nothing."""
        return Feedback(outcome.outputs, info=self._info(outcome, seed=seed))

    def evaluate(self, outcome: StepOutcome, *, seed: int) -> Feedback:
        """What a step brought."""
        infos = outcome.infos
        return Feedback(
            outcome.outputs,
            float(infos[self._reward]) if self._reward >= 0 else 0.0,
            bool(self._terminated >= 0 and infos[self._terminated] > 0.5),
            bool(self._truncated >= 0 and infos[self._truncated] > 0.5),
            "",
            self._info(outcome, seed=seed),
        )

    def cut(self, observation: NDArray[np.float32], reason: str, *, seed: int) -> Feedback:
        """The honest end of an episode whose last step cannot be told: the last observation again."""
        info = {
            "osp_seed": seed,
            "infos": dict.fromkeys(self._info_names, float("nan")),
            "events": (),
            "values": {},
            "restored": False,
            "reason": reason,
        }
        return Feedback(observation, truncated=True, reason=reason, info=info)

    def _info(self, outcome: StepOutcome, *, seed: int) -> dict[str, Any]:
        return {
            "osp_seed": seed,
            "infos": dict(zip(self._info_names, outcome.infos.tolist(), strict=True)),
            "events": outcome.events,
            "values": outcome.values,
            "restored": outcome.restored,
            "reason": "",
        }


def _index(names: list[str], name: str) -> int:
    return names.index(name) if name in names else -1


def _bounds(
    ranges: list[tuple[float, float]], *, bounded: bool
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """float32[n] each. A range that is no range (NaN, or the wrong way round) counts as unbounded."""
    low = np.full(len(ranges), -np.inf, np.float32)
    high = np.full(len(ranges), np.inf, np.float32)
    for at, (least, most) in enumerate(ranges):
        if bounded and least < most:
            low[at], high[at] = least, most
    return low, high
