"""What one connection of the hub asks and is told again and again: the steps of the same agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ospbridge.daemon.attachment import State
from ospbridge.errors import OspBridgeError
from ospbridge.hub.recurring import RecurringFeedbacks, RecurringStep
from ospbridge.task.base import ANY_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment

    Move = tuple[Attachment, bytes]

__all__ = ["Recurrence"]

FLOAT: Final = np.dtype("<f4")
SHORT: Final = 4096
"""Bytes of a request that is copied once more rather than looked at in its place."""
LONG: Final = 65_536
"""Bytes of actions, and numbers of observations, beside which the making of a message takes no time."""


_least: Final = np.minimum.reduce
_most: Final = np.maximum.reduce


class LoneStep(NamedTuple):
    """A request with its length: ``size`` bytes that begin with ``head`` and end with an action."""

    mover: Attachment
    head: bytes
    size: int


class Recurrence:
    """Knows a step by its bytes from the third time on that the same agents make one, and nobody else in between."""

    __slots__ = ("_alike", "_as_given", "_movers", "_reply", "_rows", "_step", "lone")

    def __init__(self) -> None:
        self._movers: list[Attachment] = []
        """Whose the latest step was."""
        self._step: RecurringStep | None = None
        self.lone: LoneStep | None = None
        """The step that is known, where it is one of a single agent."""
        self._rows: list[tuple[Attachment, slice]] = []
        """Where in an array of all actions each is; none where one cannot be read so, as a choice cannot."""
        self._as_given: tuple[float, float] | None = None
        """Between these the numbers of every action are the inputs as they are."""
        self._alike = False
        """All actions have equally many numbers, and some."""
        self._reply: RecurringFeedbacks | None = None

    def forget(self) -> None:
        """Something else was asked: agents may have come and gone."""
        self._movers, self._rows = [], []
        self._as_given = None
        self._step = self._reply = self.lone = None

    def moves(self, message: memoryview) -> tuple[list[Move], list[NDArray[np.float32]] | None] | None:
        """Of a request that is known; with the inputs of all, where reading them one by one would take longer."""
        step = self._step
        if step is None:
            return None
        actions = step.actions(message)
        if actions is None:
            return None
        if len(self._movers) == 1:
            return [(self._movers[0], actions)], None
        moves = [(mover, actions[bounds]) for mover, bounds in zip(self._movers, step.bounds, strict=True)]
        return moves, self._inputs(actions)

    def _inputs(self, actions: bytes) -> list[NDArray[np.float32]] | None:
        """None where there is something to tell of one of them, or one plays no more."""
        if not self._rows:
            return None
        for mover, _ in self._rows:
            if mover.state is not State.PLAYING:
                return None
        numbers = np.frombuffer(actions, FLOAT)
        if self._as_given is not None:
            lowest, highest = self._as_given
            # Neither is true of NaN.
            if lowest <= _least(numbers) and _most(numbers) <= highest:
                if self._alike:
                    return list(numbers.reshape(len(self._rows), -1))
                return [numbers[row] for _, row in self._rows]
        if not np.isfinite(numbers).all():
            return None
        try:
            return [mover.held.task.inputs(numbers[row]) for mover, row in self._rows]
        except OspBridgeError:
            return None

    def learn(self, moves: Sequence[Move]) -> None:
        """A step was asked for with a message that was not known."""
        before, movers = self._movers, [attachment for attachment, _ in moves]
        self.forget()
        self._movers = movers
        if movers and movers == before and sum(len(action) for _, action in moves) <= LONG:
            self._step = step = RecurringStep(
                [(attachment.name, len(action)) for attachment, action in moves]
            )
            if step.head and step.size <= SHORT:
                self.lone = LoneStep(movers[0], step.head, step.size)
            if len(set(movers)) == len(movers) and all(mover.takes(action) for mover, action in moves):
                rows = (slice(b.start // FLOAT.itemsize, b.stop // FLOAT.itemsize) for b in self._step.bounds)
                self._rows = list(zip(movers, rows, strict=True))
                sizes = {len(action) for _, action in moves}
                self._alike = len(sizes) == 1 and 0 not in sizes
                self._as_given = _common(mover.held.task.as_given for mover in movers)

    def reply(self) -> bytearray | None:
        """To the latest step, where it was known; None where there is more to tell than numbers."""
        movers = self._movers
        if self._step is None or movers[0].feedback is None:
            return None
        seed = movers[0].feedback.info["osp_seed"]
        if self._reply is None or self._reply.seed != seed:
            sizes = [(mover.name, len(mover.observation), len(mover.infos)) for mover in movers]
            if sum(size for _, size, _ in sizes) > LONG:
                return None
            self._reply = RecurringFeedbacks(sizes, seed)
        return self._reply.frame(movers)


def _common(limits: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """What lies between all of these; None where one of them is None."""
    lowest, highest = ANY_NUMBER
    for both in limits:
        if both is None:
            return None
        lowest, highest = max(lowest, both[0]), min(highest, both[1])
    return lowest, highest
