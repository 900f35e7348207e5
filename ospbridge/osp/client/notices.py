"""What a session is told that no exchange of its own asked for."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Anomaly", "Notice", "Notices", "Told", "WorldReset", "told_by"]

_COMPLETED: Final = bytes((Code.NEXT_SIMULATION_STEP_COMPLETED,))
KEPT: Final = 256
"""So many notices wait to be taken. Of more anomalies nothing new is learnt."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something happened that no exchange asked for; by itself what users should know of the simulator."""

    text: str


@dataclass(frozen=True, slots=True)
class Anomaly(Notice):
    """A datagram came late, twice or unasked, or something met silence: from now on steps are verified."""


@dataclass(frozen=True, slots=True)
class WorldReset(Notice):
    """The world was reset without this session having asked: its episodes are over."""


class Notices(list[Notice]):
    """One session's, until somebody takes them."""

    def __init__(self) -> None:
        self._remarked: set[str] = set()
        self.unreadable = 0
        """So many datagrams came that are no replies of OSP."""
        self.unreadable_latest = ""
        """What is wrong with the latest of them."""
        self.unreadable_at = -inf
        """When that came."""

    def anomaly(self, text: str) -> None:
        """Something that verified steps make up for; not kept where there are many already."""
        if len(self) < KEPT:
            self.append(Anomaly(text))

    def unread(self, text: str, now: float) -> None:
        """A datagram came that is no reply of OSP."""
        self.unreadable += 1
        self.unreadable_latest = text
        self.unreadable_at = now

    def remark(self, text: str, *, about: str = "") -> None:
        """What users should know of this simulator: once in a session, or once of what it is ``about``."""
        if (about or text) not in self._remarked and len(self._remarked) < KEPT:
            self._remarked.add(about or text)
            self.append(Notice(text))

    def remark_completion(self, data: bytes, text: str) -> None:
        """Where it is one that nobody can read. What it brought may be restored, so that its step does not tell."""
        if data.startswith(_COMPLETED):
            self.remark(f"a completion that is not of OSP 1.1 came {text}", about="illegible completions")

    def reset(self, text: str) -> None:
        """The world was reset unasked. One tells as much as several."""
        if not any(isinstance(notice, WorldReset) for notice in self):
            self.append(WorldReset(text))


class Told(NamedTuple):
    """What several notices tell, by whom it concerns."""

    reset: str
    """Episodes: what is said of a reset by others; empty where none came."""
    remarks: list[str]
    """Users."""
    anomalies: list[str]
    """Whoever looks for what is wrong with a line."""


def told_by(notices: Iterable[Notice]) -> Told:
    """What these tell."""
    reset, remarks, anomalies = "", [], []
    for notice in notices:
        if isinstance(notice, WorldReset):
            reset = reset or notice.text
        elif isinstance(notice, Anomaly):
            anomalies.append(notice.text)
        else:
            remarks.append(notice.text)
    return Told(reset, remarks, anomalies)
