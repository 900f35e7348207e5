"""The reset to come: which seed those want who ask for it, and until when it is held for others. No I/O, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.daemon.attachment import State
from ospbridge.interface import DrawnSeed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ospbridge.daemon.attachment import Attachment
    from ospbridge.daemon.holding import Holds

__all__ = ["AwaitedReset", "blocked_by_same_thread"]

GRACE: Final = 2.0
"""Seconds that a due reset waits for those whose episode is over and who have not asked yet."""


class AwaitedReset:
    """Of one simulator; it stays from one reset to the next. Times are in seconds."""

    def __init__(self, holds: Holds) -> None:
        self.retried_seed: DrawnSeed | None = None
        """What a reset that is tried again was given where nobody wanted one; any other comes before it."""
        self.grace = GRACE
        self.quiet_since = 0.0
        """When the latest episode ended."""
        self.asked_since = 0.0
        """When the first of those asked who wait."""
        self._holds = holds
        self._seeds: dict[Attachment, int] = {}
        """What those want who asked, the latest last; 0: don't care. Some wait no more."""

    def ask(self, attachment: Attachment, seed: int) -> None:
        """It waits for this reset, and wants ``seed``."""
        self._seeds.pop(attachment, None)
        self._seeds[attachment] = seed

    def forget(self, attachment: Attachment) -> None:
        """It is gone."""
        self._seeds.pop(attachment, None)

    @property
    def wanted_seed(self) -> int:
        """For the next reset; 0: don't care. The latest counts, but none that was drawn behind one that was given.

        Who waits no longer, since it left or was given up, wants none.
        """
        wanted: int = self.retried_seed or 0
        for attachment, seed in self._seeds.items():
            given = wanted and not isinstance(wanted, DrawnSeed)
            if attachment.state is State.WAITING and seed and not (given and isinstance(seed, DrawnSeed)):
                wanted = seed
        return wanted

    @property
    def grace_ends(self) -> float:
        """Until when a reset is held for those who are expected to ask for it too, and do not hold the world."""
        return max(self.quiet_since, self.asked_since) + self.grace

    def may_grow(self, attachments: Iterable[Attachment], waiting: Sequence[Attachment], now: float) -> bool:
        """Whether one of ``attachments`` whose episode is over has time left to ask too, and still can.

        A thread that waits for one cannot for another. Who holds the world asks when it lets go of it, and would have
        to wait for the others' next episodes otherwise.
        """
        grace = now < self.grace_ends
        return any(
            a.state is State.DONE
            and (grace or now < self._holds.until(a.driver))
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
