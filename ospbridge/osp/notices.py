"""What a session is told that no exchange of its own asked for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Anomaly", "Notice", "WorldReset"]


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
