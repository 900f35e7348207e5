"""The reset to come: who waits for it, for whom it waits, and deadlines that stand still. No I/O, no clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ospbridge.daemon.attachment import State
from ospbridge.interface import DrawnSeed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.daemon.attachment import Attachment

__all__ = ["NextReset", "ResetRequest", "SuspendedDeadlines", "blocked_by_same_thread"]

GRACE: Final = 2.0
"""Seconds that a due reset waits for those whose episode is over and who have not asked yet."""


class SuspendedDeadlines:
    """Deadlines stand still while a driver waits for its weights, for as long as it may; several may at once.

    All times are in seconds. ``elapsed`` is a clock of which deadlines are reckoned.
    """

    def __init__(self) -> None:
        self.suspensions: dict[object, tuple[float, str]] = {}
        """Until when, and why, by who has not resumed yet."""
        self._suspended = 0.0
        """Seconds in all, until ``_counted``."""
        self._counted = 0.0

    def suspend(self, who: object, now: float, seconds: float, reason: str) -> None:
        """For ``seconds`` at most, or until ``who`` resumes."""
        self._count(now)
        self.suspensions[who] = (now + seconds, reason)

    def resume(self, who: object, now: float) -> None:
        """``who`` waits no more. Safe to call again."""
        self._count(now)
        self.suspensions.pop(who, None)

    @property
    def reason(self) -> str:
        """Why, by who may wait longest."""
        return max(self.suspensions.values())[1] if self.suspensions else ""

    def until(self, who: object) -> float:
        """Until when ``who`` may wait; 0 where it does not."""
        return self.suspensions.get(who, (0.0, ""))[0]

    def left(self, now: float) -> float:
        """Seconds that deadlines may still stand; 0 where they run."""
        return max((until - now for until, _ in self.suspensions.values() if until > now), default=0.0)

    def next_end(self, now: float) -> float:
        """When the next of them may wait no longer; infinity where nobody does."""
        return min((until for until, _ in self.suspensions.values() if until > now), default=math.inf)

    def elapsed(self, now: float) -> float:
        """``now``, less all the time for which deadlines stood."""
        if self.suspensions:
            self._count(now)
        return now - self._suspended

    def ends(self, deadline: float, now: float) -> float:
        """When a deadline on the clock of ``elapsed`` is over, if nobody resumes before it must."""
        return now + deadline - self.elapsed(now) + self.left(now)

    def _count(self, now: float) -> None:
        if self.suspensions:
            latest = max(self.suspensions.values())[0]
            self._suspended += max(0.0, min(now, latest) - self._counted)
        self._counted = now


@dataclass(frozen=True, slots=True)
class ResetRequest:
    """An attachment's."""

    seed: int
    """0: don't care."""
    asked: float
    deadline: float
    """On the clock of ``SuspendedDeadlines.elapsed``."""
    steps: int
    """Of the simulator until then."""


class NextReset:
    """It stays from one reset to the next. ``quorum``: how many must wait for the very first."""

    def __init__(self, quorum: int, deadlines: SuspendedDeadlines) -> None:
        self.quorum = quorum
        self.grace = GRACE
        self.requests: dict[Attachment, ResetRequest] = {}
        """Of those who wait, the latest last."""
        self.begun = False
        """A reset has run: the quorum has been met."""
        self.doubt = ""
        """Why episodes that it ends cannot be trusted; empty where nothing is known against them."""
        self.quiet_since = 0.0
        """When the latest episode ended."""
        self._deadlines = deadlines

    @property
    def wanted_seed(self) -> int:
        """0: don't care. The latest counts, but none that was drawn behind one that was given."""
        wanted = 0
        for request in self.requests.values():
            given = wanted and not isinstance(wanted, DrawnSeed)
            if request.seed and not (given and isinstance(request.seed, DrawnSeed)):
                wanted = request.seed
        return wanted

    @property
    def grace_ends(self) -> float:
        """Until when a reset is held for those who are expected to ask for it too."""
        asked = min((request.asked for request in self.requests.values()), default=0.0)
        return max(self.quiet_since, asked) + self.grace

    def due(self, attachments: Iterable[Attachment], now: float) -> bool:
        """Enough wait, and nobody else of ``attachments`` is expected: an episode that has ended may bring one more.

        A thread that waits for one cannot ask for another. Who suspends deadlines asks when it has its weights, and
        would have to wait for the others' next episodes otherwise.
        """
        waiting = self.requests
        if not waiting or (not self.begun and len(waiting) < self.quorum):
            return False
        grace = now < self.grace_ends
        return not any(
            a.state is State.DONE
            and (grace or now < self._deadlines.until(a.driver))
            and not a.held.missing
            and not any(blocked_by_same_thread(a, w) for w in waiting)
            for a in attachments
        )


def blocked_by_same_thread(one: Attachment, waiting: Attachment) -> bool:
    """``one`` belongs to the very thread that waits for ``waiting``: it can do nothing meanwhile."""
    if one is waiting or one.thread != waiting.thread:
        return False
    # Drivers of the relay have no thread of their own, and are of one process although none waits for another.
    return one.driver is waiting.driver or (one.thread != 0 and one.driver.same_process(waiting.driver))
