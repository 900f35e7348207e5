"""Completions that were believed, to know them again when the network brings them late or twice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.straight import MARKED

if TYPE_CHECKING:
    from ospbridge.osp.messages import StepCompleted
    from ospbridge.osp.straight import StraightWay

__all__ = ["COMPLETIONS_KEPT", "Remembered"]

COMPLETIONS_KEPT: Final = 4096
"""So many earlier completions of an agent are known again."""

ROUNDED: Final = 1e-5
"""The share of a number that may be lost where it is printed."""


class Remembered:
    """Of all agents of a session, by local id."""

    def __init__(self) -> None:
        self._last: dict[int, bytes] = {}
        """What is remembered of each agent's last completion."""
        self._earlier: dict[int, dict[int, None]] = {}

    def add(self, reply: StepCompleted) -> None:
        """A completion was believed."""
        self._add(reply.agent_id, _body(reply))

    def _add(self, agent_id: int, body: bytes) -> None:
        self._last[agent_id] = body
        earlier = self._earlier.setdefault(agent_id, {})
        earlier[hash(body)] = None
        if len(earlier) > COMPLETIONS_KEPT:
            del earlier[next(iter(earlier))]

    def take_over(self, way: StraightWay) -> None:
        """What the latest steps on a straight way brought, which stays in its own form until somebody asks."""
        for agent_id, body in way.bodies():
            self._add(agent_id, body)

    def recall(self, reply: StepCompleted) -> bool:
        """Whether an earlier step of that agent brought the very same outputs and infos."""
        last = self._last.get(reply.agent_id)
        if last is None:
            return False
        body = _body(reply)
        return body == last or hash(body) in self._earlier[reply.agent_id]

    def differs(self, reply: StepCompleted) -> bool:
        """Whether it is known to be other than what the agent's last completion brought.

        Numbers that were read back may be rounded.
        """
        last = np.frombuffer(self._last.get(reply.agent_id, b""), "<f4")
        now = np.frombuffer(_body(reply), "<f4")
        if not len(last) or len(last) != len(now):
            return False
        return not np.allclose(now, last, rtol=ROUNDED, atol=ROUNDED / 10.0, equal_nan=True)


def _body(reply: StepCompleted) -> bytes:
    """What outputs and infos are recognised by, whole or cut by the server."""
    return (reply.outputs.tobytes() + reply.infos.tobytes())[:MARKED]
