"""How many datagrams went over a line each way, by their first byte, which is the code of OSP 1.1."""

from __future__ import annotations

from ospbridge.osp.codes import Code

__all__ = ["Tally", "by_name"]

OTHER = "other"
"""What a datagram is called that begins with no code."""


class Tally:
    """Counts for as long as a daemon lives, through all its sessions: lists of 256, which whoever counts adds to."""

    __slots__ = ("_received", "_sent", "fast_steps")

    def __init__(self) -> None:
        self._sent = [0] * 256
        self._received = [0] * 256
        self.fast_steps = 0
        """Step requests that took the fast path: two datagrams each way, which are told apart when somebody asks."""

    @property
    def sent(self) -> list[int]:
        """To the simulator."""
        self._settle()
        return self._sent

    @property
    def received(self) -> list[int]:
        """From the simulator."""
        self._settle()
        return self._received

    def _settle(self) -> None:
        votes, self.fast_steps = self.fast_steps, 0
        self._sent[Code.NEXT_SIMULATION_STEP] += votes
        self._received[Code.NEXT_SIMULATION_STEP_ACK] += votes
        self._received[Code.NEXT_SIMULATION_STEP_COMPLETED] += votes
        self._sent[Code.NEXT_SIMULATION_STEP_COMPLETED_ACK] += votes


def by_name(counts: list[int]) -> dict[str, int]:
    """The same by the names of codes, in the order of the protocol; those that never came are left out."""
    named = {code.name: counts[code] for code in Code if counts[code]}
    others = sum(counts) - sum(named.values())
    return {**named, OTHER: others} if others else named
