"""What a session is told that no exchange of its own asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Anomaly", "Notice", "Told", "WorldReset", "told_by"]


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
