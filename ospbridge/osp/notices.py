"""What a session is told that no exchange of its own asked for, and the steps that came late."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LATE", "STALLED", "Anomaly", "Notice", "Notices", "Pace", "Told", "WorldReset", "told_by"]

KEPT: Final = 256
"""Notices that wait to be taken, at most."""
LATE: Final = 0.010
"""Seconds of a wait that drivers tell of. What is shorter changes no decision."""
STALLED: Final = 0.045
"""Seconds of a wait that was a stall: the handler thread of a NERD server sleeps for 50 ms."""
WINDOW: Final = 1000
"""Latest steps among which stalls are counted."""
RECENT: Final = 100
"""Latest steps whose times say how long a step may take."""
LEAST: Final = 100
"""Steps before stalls are spoken of: the first ones may be slow for another reason."""
TOLERATED: Final = 5
"""Stalls among ``WINDOW`` steps that are not worth a word."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that no exchange asked for; by itself what users should know of the simulator."""

    text: str


@dataclass(frozen=True, slots=True)
class Anomaly(Notice):
    """A datagram came late, twice or unsolicited, or a request met silence."""


@dataclass(frozen=True, slots=True)
class WorldReset(Notice):
    """The world was reset without this session having asked: its episodes are over."""


class Notices(list[Notice]):
    """Those of one session, until somebody takes them."""

    def __init__(self) -> None:
        self._remarked: set[str] = set()
        self.undecodable = ""
        """What is wrong with the latest datagram that is no reply of OSP."""
        self.undecodable_count = 0

    def anomaly(self, text: str) -> None:
        """Something that was repaired or told otherwise; not kept where many wait already."""
        if len(self) < KEPT:
            self.append(Anomaly(text))

    def undecoded(self, text: str) -> None:
        """A datagram came that is no reply of OSP."""
        self.undecodable_count += 1
        self.undecodable = text
        self.anomaly(text)

    def remark(self, text: str, *, about: str = "") -> None:
        """What users should know of this simulator: once in a session, or once of what it is ``about``."""
        if (about or text) not in self._remarked and len(self._remarked) < KEPT:
            self._remarked.add(about or text)
            self.append(Notice(text))

    def reset(self, text: str) -> None:
        """An unsolicited reset of the world. One notice tells as much as several."""
        if not any(isinstance(notice, WorldReset) for notice in self):
            self.append(WorldReset(text))


class Told(NamedTuple):
    """What several notices tell, by whom it concerns."""

    reset: str
    """Episodes: what is said of a reset by others; empty where none came."""
    remarks: list[str]
    """Users."""
    anomalies: list[str]
    """Whoever looks for what is wrong with a network."""


def told_by(notices: Iterable[Notice]) -> Told:
    """What these notices tell."""
    reset, remarks, anomalies = "", [], []
    for notice in notices:
        if isinstance(notice, WorldReset):
            reset = reset or notice.text
        elif isinstance(notice, Anomaly):
            anomalies.append(notice.text)
        else:
            remarks.append(notice.text)
    return Told(reset, remarks, anomalies)


class Pace:
    """How long the steps of one simulator take; only those that took longer than ``LATE`` are kept.

    A NERD server under the kernel's ordinary scheduling policy completes up to a fifth of its steps 50 ms late, however
    short they are otherwise. Where ``curable``, users are told once, with the command that mends it.
    """

    def __init__(self, notices: Notices, peer: str) -> None:
        self._notices = notices
        self._peer = peer
        self._late: dict[int, float] = {}
        """Seconds, by the number of the step; 0 is what the latest steps of the session before took at most."""
        self.curable = False
        """The simulator runs on this host, is of a kind that stalls, and users were not told yet."""

    def late(self, step: int, seconds: float) -> None:
        """The step of that number waited so long for one of its datagrams."""
        late = self._late
        late[step] = max(late.pop(step, 0.0), seconds)
        while (first := next(iter(late))) <= step - WINDOW:
            del late[first]
        if self.curable and seconds >= STALLED:
            self._look_for_stalls(min(step, WINDOW))

    def longest(self, step: int) -> float:
        """Seconds that the longest of the ``RECENT`` steps before ``step`` took."""
        return max((took for at, took in self._late.items() if at > step - RECENT), default=0.0)

    def _look_for_stalls(self, steps: int) -> None:
        if steps < LEAST or 2 * len(self._late) >= steps:
            return
        stalls = sum(seconds >= STALLED for seconds in self._late.values())
        if stalls > TOLERATED:
            self.curable = False
            self._notices.remark(
                f"{self._peer} completed {stalls} of its latest {steps:,} steps more than "
                f"{1000 * STALLED:.0f} ms late, as simulators do that lose wake-ups between their threads; "
                f"`ospbridge tune {self._peer}` mends it while the simulator runs"
            )
