"""What a daemon tells of itself: its agents, what it records, and how its upstreams stand."""

from __future__ import annotations

import msgspec

__all__ = ["AgentStatus", "RecordingStatus", "SpoolStatus", "UpstreamStatus"]


class AgentStatus(msgspec.Struct, frozen=True):
    """One agent of the daemon: what drives it, and how that one stands."""

    name: str
    state: str
    """``free``, or the attachment's: ``attached``, ``waiting for reset``, ``playing``, ``done``."""
    driver: str = ""
    steps: int = 0
    """Steps of the current episode."""
    episodes: int = 0


class RecordingStatus(msgspec.Struct, frozen=True):
    """What the daemon writes down."""

    directory: str
    recorded: int = 0
    """Episodes on disk since the daemon began."""
    dropped: int = 0
    """Episodes that could not be written."""


class SpoolStatus(msgspec.Struct, frozen=True):
    """Episodes on their way to an upstream that observes."""

    file: str
    entries: int = 0
    """Episodes, or pieces of long ones, on disk."""
    bytes: int = 0
    unwritten: int = 0
    """Entries that are not on disk yet."""
    dropped: int = 0
    """Entries that were lost since the daemon began."""
    trouble: str = ""
    """Why nothing can be written; empty where it can."""


class UpstreamStatus(msgspec.Struct, frozen=True):
    """One upstream of the daemon, and how its relay stands."""

    address: str
    mode: str
    trouble: str = ""
    """Why it is not connected; empty where it is."""
    dialect: str = ""
    weights_seq_no: int | None = None
    """Of the weights that act."""
    batches: int = 0
    """That were learned from."""
    steps: int = 0
    """Of those batches."""
    discarded: int = 0
    """Steps that nobody could learn from any more, or that could not be sent."""
    delivered: int = 0
    """Steps that are proven to have arrived, of an upstream that observes."""
    spool: SpoolStatus | None = None
    """What waits for it."""
