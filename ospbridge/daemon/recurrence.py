"""What one connection of the hub asks and is told again and again: the steps of the same agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.hub.recurring import RecurringFeedbacks, RecurringStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.attachment import Attachment

    Move = tuple[Attachment, bytes]

__all__ = ["Recurrence"]

LONG: Final = 65_536
"""Bytes of actions, and numbers of observations, beside which the making of a message takes no time."""


class Recurrence:
    """Knows a step by its bytes from the third time on that the same agents make one, and nobody else in between."""

    __slots__ = ("_movers", "_reply", "_step")

    def __init__(self) -> None:
        self._movers: list[Attachment] = []
        """Whose the latest step was."""
        self._step: RecurringStep | None = None
        self._reply: RecurringFeedbacks | None = None

    def forget(self) -> None:
        """Something else was asked: agents may have come and gone."""
        self._movers = []
        self._step = self._reply = None

    def moves(self, message: memoryview) -> list[Move] | None:
        """Of a request that is known."""
        if self._step is None:
            return None
        actions = self._step.actions(message)
        return None if actions is None else list(zip(self._movers, actions, strict=True))

    def learn(self, moves: Sequence[Move]) -> None:
        """A step was asked for with a message that was not known."""
        before, movers = self._movers, [attachment for attachment, _ in moves]
        self.forget()
        self._movers = movers
        if movers and movers == before and sum(len(action) for _, action in moves) <= LONG:
            self._step = RecurringStep([(attachment.name, len(action)) for attachment, action in moves])

    def reply(self) -> bytearray | None:
        """To the latest step, where it was known; None where there is more to tell than numbers."""
        if self._step is None:
            return None
        told = []
        for mover in self._movers:
            if mover.feedback is None:
                return None
            told.append((mover.feedback, mover.infos))
        seed = told[0][0].info["osp_seed"]
        if self._reply is None or self._reply.seed != seed:
            sizes = [(len(feedback.observation), len(infos)) for feedback, infos in told]
            if sum(size for size, _ in sizes) > LONG:
                return None
            names = (mover.name for mover in self._movers)
            self._reply = RecurringFeedbacks(
                [(name, *size) for name, size in zip(names, sizes, strict=True)], seed
            )
        return self._reply.frame(told)
