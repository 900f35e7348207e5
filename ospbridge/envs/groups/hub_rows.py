"""A hub's messages about several agents that are alike, as rows of one array instead of an object for each agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ospbridge.envs.groups.rows import ActionRows, FeedbackRows
from ospbridge.errors import RemoteProtocolError
from ospbridge.finite import all_finite
from ospbridge.hub.framing import decode_reply
from ospbridge.hub.recurring import FLOAT, REWARD, AgainFrame
from ospbridge.hub.replies import Numbers
from ospbridge.interface import BoxSpace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ospbridge.hub.replies import HubReply
    from ospbridge.interface import AgentInterface, Space

__all__ = ["HubRows"]

LONG: Final = 16_384
"""Numbers of a message beside which its objects take no time."""


class HubRows:
    """For the agents of one connection: steps of all of them, and the answers that tell nothing but numbers.

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
        observed = len(next(iter(observation_spaces.values())).low)
        inputs = len(self._action.low) if isinstance(self._action, BoxSpace) else 1
        count, informed = len(self._names), len(self._info_names)
        self._shape = (count, inputs)
        self._shapes = (count, observed), (count, informed)
        self._told = 4 * count * observed, 4 * count * informed, 8 * count
        """Bytes of all observations, infos and rewards."""
        self._alike = (
            max(inputs, observed + informed) * count <= LONG
            and all(agent.info_names == self._info_names for agent in interfaces.values())
            and all(len(space.low) == observed for space in observation_spaces.values())
            and all(_form(space) == _form(self._action) for space in action_spaces.values())
        )
        self._frame = AgainFrame(count * inputs if self._alike else 0)

    # --- steps -------------------------------------------------------------------------------------------------------

    def again(self, playing: Sequence[str], actions: Mapping[str, object]) -> bytearray | None:
        """The message of one step more, valid until the next call, where all play and ``actions`` are rows of it.

        None where names must be told, or an error.
        """
        names = self._names
        if not self._alike or not isinstance(actions, ActionRows):
            return None
        rows = actions.rows
        if playing != names or actions.names != names or type(rows) is not np.ndarray or not self._fit(rows):
            return None
        frame = self._frame
        frame.numbers.reshape(rows.shape)[:] = rows
        return frame.frame if all_finite(frame.numbers) else None

    def _fit(self, rows: NDArray[Any]) -> bool:
        """Whether they are one action for each, but for numbers that are none."""
        action = self._action
        if isinstance(action, BoxSpace):
            return rows.dtype == FLOAT and rows.shape == self._shape
        return (
            rows.dtype.kind in "iu"
            and rows.shape == self._shape[:1]
            and bool((rows >= 0).all())
            and bool((rows < action.n).all())
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def read(self, message: memoryview) -> HubReply | FeedbackRows:
        """What the daemon says. Raises RemoteProtocolError."""
        reply = decode_reply(message)
        if type(reply) is not Numbers:
            return reply
        sizes = len(reply.observations), len(reply.infos), len(reply.rewards)
        if sizes != self._told:
            raise RemoteProtocolError(
                f"expected observations, infos and rewards of {self._told} bytes for "
                f"{len(self._names)} agents, got {sizes}",
                data=bytes(message),
                offset=0,
            )
        observations, infos = self._shapes
        return FeedbackRows(
            self._names,
            observations=np.frombuffer(reply.observations, FLOAT).reshape(observations),
            rewards=np.frombuffer(reply.rewards, REWARD).copy(),
            infos=np.frombuffer(reply.infos, FLOAT).reshape(infos),
            info_names=self._info_names,
            seed=reply.seed,
        )


def _form(space: Space) -> int:
    """Equal for actions that have equally many numbers, or choices."""
    return len(space.low) if isinstance(space, BoxSpace) else -space.n
