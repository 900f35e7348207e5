"""How many datagrams went over a line each way, by their first byte, which is the code of OSP 1.1."""

from __future__ import annotations

from ospbridge.osp.codes import Code

__all__ = ["Tally", "by_name"]

OTHER = "other"
"""What a datagram is called that begins with no code."""


class Tally:
    """Counts for as long as a daemon lives, through all its sessions: lists of 256, which whoever counts adds to."""

    __slots__ = ("received", "sent")

    def __init__(self) -> None:
        self.sent = [0] * 256
        self.received = [0] * 256


def by_name(counts: list[int]) -> dict[str, int]:
    """The same by the names of codes, in the order of the protocol; those that never came are left out."""
    named = {code.name: counts[code] for code in Code if counts[code]}
    others = sum(counts) - sum(named.values())
    return {**named, OTHER: others} if others else named
