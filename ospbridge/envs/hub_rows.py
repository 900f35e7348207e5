"""A hub's messages about several agents that are alike, as rows of one array instead of an object for each agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.envs.rows import ActionRows, FeedbackRows
from ospbridge.hub.messages import decode_reply
from ospbridge.hub.recurring import RecurringFeedbacks, RecurringStep
from ospbridge.interface import BoxSpace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.hub.messages import Feedbacks, HubReply
    from ospbridge.interface import AgentInterface, Space

__all__ = ["HubRows"]

FLOAT: Final = np.dtype("<f4")
LONG: Final = 16_384
"""Numbers of a message beside which its objects take no time."""


class HubRows:
    """For the agents of one connection: the steps of all of them, and the answers that tell nothing but numbers.

    Agents whose actions, observations or infos differ in size or name have none.
    """

    def __init__(
        self,
        interfaces: Mapping[str, AgentInterface],
        observation_spaces: Mapping[str, BoxSpace],
        action_spaces: Mapping[str, Space],
    ) -> None:
        self._names = list(interfaces)
        self._info_names = next(iter(interfaces.values())).info_names
        self._action = next(iter(action_spaces.values()))
        self._observed = len(next(iter(observation_spaces.values())).low)
        self._inputs = len(self._action.low) if isinstance(self._action, BoxSpace) else 1
        count = len(self._names)
        self._alike = (
            max(self._inputs, self._observed + len(self._info_names)) * count <= LONG
            and all(agent.info_names == self._info_names for agent in interfaces.values())
            and all(len(space.low) == self._observed for space in observation_spaces.values())
            and all(_form(space) == _form(self._action) for space in action_spaces.values())
        )
        self._step: RecurringStep | None = None
        self._answer: RecurringFeedbacks | None = None

    # --- steps -------------------------------------------------------------------------------------------------------

    def step(self, playing: Sequence[str], actions: Mapping[str, object]) -> bytearray | None:
        """The message, ready to be sent and valid until the next call, where all play and ``actions`` are rows of it.

        None where messages must be made, or an error be told.
        """
        names = self._names
        if not self._alike or not isinstance(actions, ActionRows):
            return None
        rows = actions.rows
        if playing != names or actions.names != names or type(rows) is not np.ndarray or not self._fit(rows):
            return None
        if self._step is None:
            self._step = RecurringStep([(name, FLOAT.itemsize * self._inputs) for name in names])
        return self._step.frame(rows)

    def _fit(self, rows: NDArray[Any]) -> bool:
        """Whether they are one action for each."""
        action, count = self._action, len(self._names)
        if isinstance(action, BoxSpace):
            return (
                rows.dtype == FLOAT and rows.shape == (count, self._inputs) and bool(np.isfinite(rows).all())
            )
        return (
            rows.dtype.kind in "iu"
            and rows.shape == (count,)
            and bool((rows >= 0).all())
            and bool((rows < action.n).all())
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def read(self, message: memoryview) -> HubReply | FeedbackRows:
        """What the daemon says. Raises RemoteProtocolError."""
        answer = self._answer
        numbers = None if answer is None else answer.numbers(message)
        if answer is None or numbers is None:
            return decode_reply(message)
        observations, infos, rewards = numbers
        count = len(self._names)
        return FeedbackRows(
            self._names,
            observations=observations.reshape(count, self._observed),
            rewards=rewards,
            infos=infos.reshape(count, len(self._info_names)),
            info_names=self._info_names,
            seed=answer.seed,
        )

    def learn(self, answer: Feedbacks) -> None:
        """A step was answered with a message of its own: the next answer may be alike."""
        told = answer.agents
        if not self._alike or [agent.agent for agent in told] != self._names:
            self._answer = None
        elif self._answer is None or self._answer.seed != told[0].seed:
            infos = len(self._info_names)
            sizes = [(name, self._observed, infos) for name in self._names]
            self._answer = RecurringFeedbacks(sizes, told[0].seed)


def _form(space: Space) -> int:
    """Equal for actions that have equally many numbers, or choices."""
    return len(space.low) if isinstance(space, BoxSpace) else -space.n
