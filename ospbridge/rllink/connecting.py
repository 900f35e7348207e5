"""When to connect to an RLlink server, in which dialect, and how long to wait for it: data for a driver.

Facts: observed on Ray 2.47.1 and 2.60.0. A server closes the connection when a body is in the other dialect, and
listens again 5 s after any connection ended; a connection made earlier than that comes about in TCP and is reset.
So a dialect is tried, and where the connection is closed before the PONG the other one is, after that pause. A reset
says nothing of the dialect, unless it comes again. That matters where a server, as our own sink, speaks both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ospbridge.rllink.dialects import JSON, MSGPACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.rllink.dialects import Dialect

__all__ = ["POLL", "RECYCLING", "Attempt", "ConnectPlan", "End", "Limits"]

RECYCLING: Final = 5.05
"""Seconds for which a real server listens to nobody after a connection ended, and a little more."""
POLL: Final = 0.02
"""Seconds between two questions whether the weights are new."""
REFUSED_AGAIN: Final = 1.0
"""Seconds until the next try, doubled with each, where nobody listens: it costs the server nothing."""
LONGEST_REFUSED: Final = 5.0
LONGEST_PAUSE: Final = 60.0
JITTER: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds after which an exchange gives up: counted from the latest of it that was sent."""

    pong: float = 5.0
    config: float = 10.0
    answer: float = 30.0
    """Weights that only have to be sent."""
    state: float = 600.0
    """Weights that have to be learned first."""
    proof: float = 60.0
    """That experience was read."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} limit must be a positive number of seconds, got {value!r}")


class End(Enum):
    """How an attempt, or the connection it made, ended."""

    REFUSED = "nobody listens"
    CLOSED = "the server closed the connection"
    RESET = "the connection was reset"
    SILENT = "the server accepted the connection and did not answer"


@dataclass(frozen=True, slots=True)
class Attempt:
    """Connect ``pause`` seconds from now, and greet in ``dialect``."""

    pause: float
    dialect: Dialect


class ConnectPlan:
    """The attempts to reach one server. ``dialect`` None finds it out, beginning with the newer one.

    ``jitter`` draws from [0, 1) and only lengthens pauses. Ask ``next_attempt``, carry it out, and tell ``greeted``
    when the PONG came and ``ended`` when the attempt or the connection is over.
    """

    def __init__(self, dialect: Dialect | None = None, *, jitter: Callable[[], float] = lambda: 0.5) -> None:
        self.dialect = dialect
        """The dialect of the server, once it is known."""
        self._candidates = (dialect,) if dialect else (MSGPACK, JSON)
        self._candidate = 0
        self._jitter = jitter
        self._pause = 0.0
        self._greeted = False
        self._how: End | None = None
        """How the one before ended."""
        self._in_vain = 0

    @property
    def in_vain(self) -> int:
        """How many attempts in a row got no PONG."""
        return self._in_vain

    def next_attempt(self) -> Attempt:
        return Attempt(self._pause * (1.0 + JITTER * self._jitter()), self._candidates[self._candidate])

    def greeted(self) -> None:
        """The PONG came: the dialect is known from now on."""
        self.dialect = self._candidates[self._candidate]
        self._greeted = True
        self._in_vain = 0
        self._how = None

    def ended(self, how: End) -> None:
        """The attempt failed, or the connection it made is over."""
        if not self._greeted:
            self._in_vain += 1
            # A learner may come back as another release.
            doubted = how is End.CLOSED and (self.dialect is None or self._in_vain > 1)
            if doubted or how is End.RESET is self._how:
                self._candidate = (self._candidate + 1) % len(self._candidates)
        self._greeted = False
        least, longest = (
            (REFUSED_AGAIN, LONGEST_REFUSED) if how is End.REFUSED else (RECYCLING, LONGEST_PAUSE)
        )
        # A learner that starts is refused for long, and closes once if the dialect is not yet known.
        self._pause = min(max(least, 2.0 * self._pause), longest) if how is self._how else least
        self._how = how
