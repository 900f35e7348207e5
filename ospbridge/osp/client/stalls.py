"""Steps that stall because the simulator loses wake-ups between its threads: users are told once, with the cure.

A NERD server under the kernel's ordinary scheduling policy completes up to a fifth of its steps 50 ms late, however
short they are otherwise; under SCHED_BATCH hardly any. Only the drivers' long sleeps are looked at, so that a step that
is in time costs nothing: one that never slept for ``LATE`` is none of those that count here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ospbridge.osp.client.notices import Notices

__all__ = ["LATE", "STALLED", "Stalls"]

LATE: Final = 0.010
"""Seconds of a sleep that drivers tell. A simulator half of whose steps take so long has no time to lose on stalls."""
STALLED: Final = 0.045
"""Seconds of one that was a stall: the server sleeps for 50 ms."""
WINDOW: Final = 1000
"""Steps that are looked at, at most."""
LEAST: Final = 100
"""And at least: the first ones may be slow for another reason."""
TOLERATED: Final = 5
"""Stalls among them that are not worth a word."""


class Stalls:
    """Of one session with ``peer``, which ``notices`` tells of."""

    __slots__ = ("_late", "_notices", "_peer", "curable")

    def __init__(self, notices: Notices, peer: str) -> None:
        self._notices = notices
        self._peer = peer
        self._late: dict[int, float] = {}
        """Seconds slept in a step, by its number; of the latest ``WINDOW`` steps only."""
        self.curable = False
        """The simulator runs on this host and is of a kind that stalls, and users were not told yet."""

    def late(self, step: int, seconds: float) -> None:
        """The step of that number slept for ``seconds``, more than ``LATE``, for one of its datagrams."""
        if not self.curable:
            return
        late = self._late
        late[step] = max(late.pop(step, 0.0), seconds)
        while (first := next(iter(late))) <= step - WINDOW:
            del late[first]
        steps = min(step, WINDOW)
        if seconds < STALLED or steps < LEAST or 2 * len(late) >= steps:
            return
        stalls = sum(slept >= STALLED for slept in late.values())
        if stalls > TOLERATED:
            self.curable = False
            late.clear()
            self._notices.remark(
                f"{self._peer} completed {stalls} of its latest {steps:,} steps more than "
                f"{1000 * STALLED:.0f} ms late, as simulators do that lose wake-ups between their threads; "
                f"`ospbridge tune {self._peer}` mends it while the simulator runs"
            )
