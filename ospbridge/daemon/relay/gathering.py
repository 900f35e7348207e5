"""One batch from several simulators: what their loops live through is counted together, and learned from together.

Each loop runs at its own speed. It is *busy* while nothing may be taken from it: for a step, or, where only whole
episodes are learned from, for an episode. Once enough was lived for a batch it is due: no loop begins anything more,
learning starts when the last of them is not busy, and all go on when it is done. So no batch ever holds a step of other
weights than the rest.
"""

from __future__ import annotations

import trio

__all__ = ["Gathering"]


class Gathering:
    """The loops call ``begin``, ``lived`` and ``end``, whoever learns ``gathered`` and ``go_on``."""

    __slots__ = ("_busy", "_learner", "_loops", "_missing", "due", "whole")

    def __init__(self) -> None:
        self.due = False
        """A batch is to be learned from: begin nothing, and wait until that ``resumed``."""
        self.whole = False
        """Only whole episodes are learned from."""
        self._missing = 0
        self._busy = 0
        self._learner = trio.lowlevel.ParkingLot()
        self._loops = trio.lowlevel.ParkingLot()

    @property
    def busy(self) -> bool:
        """Some loop is."""
        return self._busy > 0

    # --- the loops' side ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """A loop is busy from now on. May be called again before ``end``, which must then be called as often."""
        self._busy += 1

    def lived(self, steps: int) -> None:
        """So many steps more."""
        self._missing -= steps
        if self._missing <= 0:
            self.due = True

    def end(self) -> None:
        """It is not busy any more."""
        self._busy -= 1
        if self.due and not self._busy:
            self._learner.unpark_all()

    async def resumed(self) -> None:
        """Wait while a batch is due."""
        while self.due:
            await self._loops.park()

    # --- the learner's side ------------------------------------------------------------------------------------------

    async def gathered(self) -> None:
        """Wait until a batch is due and no loop is busy."""
        while self._busy or not self.due:
            await self._learner.park()

    def go_on(self, missing: int, *, whole: bool) -> None:
        """Let the loops go on: the next batch is due after ``missing`` steps."""
        self._missing = missing
        self.whole = whole
        self.due = False
        self._loops.unpark_all()
