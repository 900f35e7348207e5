"""What one connection of the hub asks and is told again and again: the steps of one agent alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.hub.recurring import RecurringFeedback, RecurringStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.daemon.attachment import Attachment

    Move = tuple[Attachment, bytes]

__all__ = ["Recurrence"]

LONG: Final = 65_536
"""Numbers of an observation beside which the making of a message takes no time."""


class Recurrence:
    """Knows a step by its bytes from the third time on that the same agent makes one, and nobody else in between."""

    __slots__ = ("_mover", "_reply", "_step")

    def __init__(self) -> None:
        self._mover: Attachment | None = None
        """Whose the latest step was, where it was one agent's."""
        self._step: RecurringStep | None = None
        self._reply: RecurringFeedback | None = None

    def forget(self) -> None:
        """Something else was asked: agents may have come and gone."""
        self._mover = self._step = self._reply = None

    def moves(self, message: memoryview) -> list[Move] | None:
        """Of a request that is known."""
        if self._step is None:
            return None
        action = self._step.action(message)
        if action is None:
            return None
        assert self._mover is not None
        return [(self._mover, action)]

    def learn(self, moves: Sequence[Move]) -> None:
        """A step was asked for with a message that was not known."""
        before = self._mover
        self.forget()
        if len(moves) == 1:
            mover, action = moves[0]
            self._mover = mover
            if mover is before:
                self._step = RecurringStep(mover.name, len(action))

    def reply(self) -> bytearray | None:
        """To the latest step, where it was known; None where there is more to tell than numbers."""
        mover = self._mover
        if self._step is None or mover is None:
            return None
        feedback = mover.feedback
        if feedback is None or len(feedback.observation) > LONG:
            return None
        seed = feedback.info["osp_seed"]
        reply = self._reply
        if reply is None or reply.seed != seed:
            reply = RecurringFeedback(mover.name, len(feedback.observation), len(mover.infos), seed)
            self._reply = reply
        return reply.frame(feedback, mover.infos)
