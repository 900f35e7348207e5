"""What one connection of the hub asks and is told again and again: the steps of the same agents."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ospbridge.daemon.attachment import State
from ospbridge.errors import LocalProtocolError, OspBridgeError
from ospbridge.finite import all_finite
from ospbridge.hub.recurring import FLOAT, AgainFrame, NumbersFrame
from ospbridge.task.base import ANY_NUMBER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.daemon.attachment import Attachment

    Move = tuple[Attachment, bytes]

__all__ = ["Recurrence"]

SHORT: Final = 4096
"""Bytes of a request that is copied once more rather than looked at in its place."""
LONG: Final = 65_536
"""Numbers of observations beside which the making of a message takes no time."""


_least: Final = np.minimum.reduce
_most: Final = np.maximum.reduce


class LoneStep(NamedTuple):
    """A request with its length: ``size`` bytes that begin with ``head`` and end with an action."""

    mover: Attachment
    head: bytes
    size: int


class Recurrence:
    """The latest step of a connection, and those of the same agents that follow it."""

    __slots__ = (
        "_as_given",
        "_bounds",
        "_known",
        "_reply",
        "_rows",
        "_sizes",
        "lone",
        "movers",
    )

    def __init__(self) -> None:
        self.movers: list[Attachment] = []
        """Whose the latest step was, with an action of so many bytes each: ``_sizes``.

        Another list where they are others.
        """
        self._sizes: list[int] = []
        self._known = False
        """What follows is known of them, because they have made a step more."""
        self.lone: LoneStep | None = None
        """One step more, where it is one of a single agent."""
        self._bounds: list[slice] = []
        """Where in the bytes of all actions each is."""
        self._rows: list[tuple[Attachment, slice]] = []
        """Where among the numbers of all actions each is; none where one cannot be read so, as a choice cannot."""
        self._as_given: tuple[float, float] | None = None
        """Between these the numbers of every action are the inputs as they are."""
        self._reply: NumbersFrame | None = None

    def forget(self) -> None:
        """Agents may have come and gone: there is no step of which there may be one more."""
        self.learn(())

    def learn(self, moves: Sequence[Move]) -> None:
        """A step was asked for by the names of its agents."""
        movers = [attachment for attachment, _ in moves]
        sizes = [len(action) for _, action in moves]
        if movers == self.movers and sizes == self._sizes:
            return
        self.movers, self._sizes = movers, sizes
        self._known = False
        self.lone = self._reply = None

    def moves(self, actions: bytes) -> tuple[list[Move], Sequence[NDArray[np.float32] | bytes] | None]:
        """One step more; with the inputs of all, where reading them one by one would take longer.

        Raises LocalProtocolError where there was no step, or one with actions of other sizes.
        """
        movers = self.movers
        if not self._known:
            if not movers:
                raise LocalProtocolError("one step more was asked for, and there was none before")
            self._know()
        bounds = self._bounds
        if len(actions) != bounds[-1].stop:
            raise LocalProtocolError(
                f"the actions of one step more have {len(actions)} bytes, those before had {bounds[-1].stop}"
            )
        if len(movers) == 1:
            return [(movers[0], actions)], None
        parts = [actions[where] for where in bounds]
        return list(zip(movers, parts, strict=True)), self._inputs(actions, parts)

    def _know(self) -> None:
        """What is needed for those that follow."""
        movers, sizes = self.movers, self._sizes
        self._known = True
        self._bounds = [slice(*both) for both in pairwise(accumulate(sizes, initial=0))]
        self._rows = []
        self._as_given = None
        if any(size % FLOAT.itemsize for size in sizes):
            return
        if len(movers) == 1:
            again = AgainFrame(sizes[0] // FLOAT.itemsize)
            if len(again.frame) <= SHORT:
                self.lone = LoneStep(movers[0], again.head, len(again.frame))
        elif len(set(movers)) == len(movers) and all(
            m.takes(size) for m, size in zip(movers, sizes, strict=True)
        ):
            rows = (slice(b.start // FLOAT.itemsize, b.stop // FLOAT.itemsize) for b in self._bounds)
            self._rows = list(zip(movers, rows, strict=True))
            if any(sizes):
                self._as_given = _common(mover.held.task.as_given for mover in movers)

    def _inputs(self, actions: bytes, parts: list[bytes]) -> Sequence[NDArray[np.float32] | bytes] | None:
        """None where there is something to tell of one of them, or one plays no more."""
        if not self._rows:
            return None
        for mover, _ in self._rows:
            if mover.state is not State.PLAYING:
                return None
        numbers = np.frombuffer(actions, FLOAT)
        if not all_finite(numbers):
            return None
        limits = self._as_given
        if limits is not None and (
            limits == ANY_NUMBER or (limits[0] <= _least(numbers) and _most(numbers) <= limits[1])
        ):
            return parts
        try:
            return [mover.held.task.inputs(numbers[row]) for mover, row in self._rows]
        except OspBridgeError:
            return None

    def reply(self) -> bytearray | None:
        """To one step more; None where there is more to tell than numbers."""
        movers = self.movers
        if not movers or movers[0].feedback is None:
            return None
        seed = movers[0].feedback.info["osp_seed"]
        if self._reply is None or self._reply.seed != seed:
            sizes = [(len(mover.observation), len(mover.infos)) for mover in movers]
            if sum(size for size, _ in sizes) > LONG:
                return None
            self._reply = NumbersFrame(sizes, seed)
        return self._reply.frame(movers)


def _common(limits: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    """What lies between all of these; None where one of them is None."""
    lowest, highest = ANY_NUMBER
    for both in limits:
        if both is None:
            return None
        lowest, highest = max(lowest, both[0]), min(highest, both[1])
    return lowest, highest
