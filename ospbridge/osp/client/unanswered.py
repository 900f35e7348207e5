"""What is said of a question that was not answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.counts import numbered
from ospbridge.errors import QueryTimeout

if TYPE_CHECKING:
    from collections.abc import Sized

    from ospbridge.osp.client.machine import ClientMachine
    from ospbridge.osp.messages import Message

__all__ = ["WRITES_OTHERWISE", "Unanswered"]

WRITES_OTHERWISE: Final = (
    "what answers there writes otherwise than OSP 1.1: its author can tell from these bytes"
)
"""A hint."""


class Unanswered:
    """Made when a question is asked, so that it knows what has come since."""

    def __init__(self, m: ClientMachine, request: Message, what: str) -> None:
        self._m = m
        self._request = request
        self._what = what
        self._started = m.now
        self._unreadable = m.notices.unreadable

    def check(self, tries: int, pieces: Sized) -> None:
        """Raises QueryTimeout where a list has no piece, because nobody can read those that came."""
        if not pieces and self._m.notices.unreadable > self._unreadable:
            raise self.error(tries)

    def error(self, tries: int) -> QueryTimeout:
        """What to raise. Silence is not the same as answers that nobody can read."""
        m = self._m
        said = (
            f"{m.peer} did not answer {self._request.CODE.name} ({self._what}) within {m.now - self._started:.1f} s, "
            f"asked {numbered(tries, 'time')}"
        )
        came = m.notices.unreadable - self._unreadable
        if not came:
            return QueryTimeout(said)
        return QueryTimeout(
            f"{said}; what came is not of OSP 1.1 ({numbered(came, 'datagram')}), "
            f"the latest: {m.notices.unreadable_latest}",
            hint=WRITES_OTHERWISE,
        )
