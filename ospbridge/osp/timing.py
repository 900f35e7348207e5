"""How long a client waits: patience before it acts on silence, and the limits after which it gives up.

The shortest patience comes from the profile: a real server stalls 50 ms by itself, seldom 100, and a datagram sent
meanwhile restarts that wait, so acting earlier does harm (observed on a NERD server).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["RESTART_SETTLES", "Limits", "Waits", "seconds_of"]

LONGEST_WAIT: Final = 1.0
JITTER: Final = 0.1
RESTART_SETTLES: Final = 0.5
"""Seconds from a restart of the communication to an INIT: a NERD server loses one within 50 ms of it, or dies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Seconds after which a request gives up. Raises ValueError for what is no positive number."""

    connect: float = 30.0
    """To join a simulator that is there."""
    query: float = 5.0
    """A question: agents, an interface, a variable."""
    listing: float = 60.0
    """A listing of variables that is so long that it must be asked for in parts."""
    step: float = 30.0
    """A step, with waiting for other clients."""
    reset: float = 60.0
    """A reset, with waiting for other clients."""
    close: float = 2.0
    """Leaving."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            seconds = seconds_of(value)
            if not 0 < seconds < float("inf"):
                raise ValueError(f"{name} limit must be a positive number of seconds, got {value!r}")
            object.__setattr__(self, name, seconds)


def seconds_of(given: object) -> float:
    """NaN for what is no number, such as a text."""
    try:
        return float("nan") if isinstance(given, str | bytes) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return float("nan")


class Waits:
    """The waits between tries of one exchange: doubling, jittered, at most one second apart."""

    __slots__ = ("_jitter", "_next")

    def __init__(self, first: float, jitter: Callable[[], float]) -> None:
        self._next = first
        self._jitter = jitter

    def next(self) -> float:
        """Seconds to wait now. Never shorter than the first patience: jitter only adds."""
        wait = self._next * (1.0 + JITTER * self._jitter())
        self._next = min(2.0 * self._next, LONGEST_WAIT)
        return wait
