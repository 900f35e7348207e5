"""What a daemon counts of one simulator, for its status and its metrics: cheap enough for every step."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from ospbridge.hub.status import STEP_BOUNDS, DatagramCounts, StepTimes
from ospbridge.observe.tally import Tally, by_name

if TYPE_CHECKING:
    from ospbridge.errors import OspBridgeError

__all__ = ["Measures"]


class Measures:
    """From the daemon's beginning, through all sessions with the simulator."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.rebuilds: Counter[str] = Counter()
        """By the names of the errors that a session was lost to."""
        self.episodes: Counter[tuple[str, str]] = Counter()
        """By the names of agents, and how an episode ended."""
        self._steps = [0] * (len(STEP_BOUNDS) + 1)
        self._seconds = 0.0
        self._retries = 0
        """Of sessions that are over."""

    def stepped(self, seconds: float) -> None:
        """A step of the simulator took so long."""
        self._steps[bisect_left(STEP_BOUNDS, seconds)] += 1
        self._seconds += seconds

    def left(self, retries: int) -> None:
        """A session is over that had asked so often again."""
        self._retries += retries

    def rebuilt(self, error: OspBridgeError) -> None:
        """A session was lost to this, and is made anew."""
        self.rebuilds[type(error).__name__] += 1

    @property
    def step_times(self) -> StepTimes:
        return StepTimes(tuple(self._steps), self._seconds)

    def datagrams(self, retries: int) -> DatagramCounts:
        """``retries``: of the session that goes on."""
        return DatagramCounts(by_name(self.tally.sent), by_name(self.tally.received), self._retries + retries)
