"""Completions that were believed, to know them again when the network brings them late or twice."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.osp.step.straight import MARKED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ospbridge.osp.messages import StepCompleted
    from ospbridge.osp.number_text import Printing
    from ospbridge.osp.step.straight import StraightWay

__all__ = ["COMPLETIONS_KEPT", "Remembered"]

COMPLETIONS_KEPT: Final = 4096
"""So many earlier completions of an agent are known again."""

READ_BACK_KEPT: Final = 64
"""The same of completions that were read back, whose numbers may be others in their last digits."""

ROUNDED: Final = 1e-5
"""The share of a number that may be lost where it is printed."""
LAST_BIT: Final = 2.0**-23
"""The same where a double is printed in digits enough for any float32, but not for itself: one that lies halfway
between two of them, as a scaled input may, is sent as the one and printed nearer to the other."""
_FLOAT: Final = np.dtype("<f4")


class Remembered:
    """Of all agents of a session, by local id."""

    def __init__(self, printing: Printing) -> None:
        self._last: dict[int, bytes] = {}
        """What is remembered of each agent's last completion."""
        self._earlier: dict[int, dict[int, None]] = {}
        self._read_back: dict[int, deque[NDArray[np.float32]]] = {}
        self._printing = printing
        """Of numbers that are read back."""

    def add(self, reply: StepCompleted, *, read_back: bool = False) -> None:
        """A completion was believed; ``read_back``: it is made of what the repository shows."""
        body = _body(reply)
        self._add(reply.agent_id, body)
        if read_back:
            kept = self._read_back.setdefault(reply.agent_id, deque(maxlen=READ_BACK_KEPT))
            kept.append(np.frombuffer(body, _FLOAT))

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
        if body == last or hash(body) in self._earlier[reply.agent_id]:
            return True
        now = np.frombuffer(body, _FLOAT)
        read_back = [one for one in self._read_back.get(reply.agent_id, ()) if len(one) == len(now)]
        return bool(read_back) and self._printed_as(now, np.stack(read_back))

    def same(self, completed: StepCompleted, read: StepCompleted) -> bool:
        """Whether the second, which was read back, is the first as far as it is printed."""
        one, other = (np.frombuffer(_body(reply), _FLOAT) for reply in (completed, read))
        return len(one) == len(other) and self._printed_as(one, other[np.newaxis])

    def differs(self, reply: StepCompleted) -> bool:
        """Whether it is known to be other than what the agent's last completion brought.

        Numbers that were read back may be rounded.
        """
        last = np.frombuffer(self._last.get(reply.agent_id, b""), _FLOAT)
        now = np.frombuffer(_body(reply), _FLOAT)
        return bool(len(last)) and len(last) == len(now) and not self._close(now, last)

    def _printed_as(self, one: NDArray[np.float32], others: NDArray[np.float32]) -> bool:
        """Whether any row of ``others`` is the same, but for what printing made of either."""
        relative, absolute = (LAST_BIT, 0.0) if self._printing.whole else self._rounded
        same = np.isclose(one, others, rtol=relative, atol=absolute, equal_nan=True)
        return bool(same.all(axis=1).any())

    @property
    def _rounded(self) -> tuple[float, float]:
        """What printing may lose of a number: a share of it, and besides."""
        return max(self._printing.relative, ROUNDED), max(self._printing.absolute, ROUNDED / 10.0)

    def _close(self, one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
        """Whether they are the same as far as they are printed; never more exactly than float32 is."""
        relative, absolute = self._rounded
        return len(one) == len(other) and np.allclose(
            one, other, rtol=relative, atol=absolute, equal_nan=True
        )


def _body(reply: StepCompleted) -> bytes:
    """What outputs and infos are recognised by, whole or cut by the server."""
    return (reply.outputs.tobytes() + reply.infos.tobytes())[:MARKED]
