"""How long a client waits: pauses between the tries of an exchange, and the limits after which it gives up."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RESTART_SETTLES", "SILENCE", "Limits", "seconds_of", "waits"]

SILENCE: Final = 0.25
"""Seconds without a datagram before anything is done about it. A NERD server stalls 50 ms by itself, seldom 100, and
whatever it is sent meanwhile restarts that."""
LONGEST_WAIT: Final = 1.0
RESTART_SETTLES: Final = 0.5
"""Seconds from a restart of the communication to an INIT: a NERD server loses one within 50 ms of it, or dies."""


def waits() -> Iterator[float]:
    """The waits between tries of one exchange, in seconds: doubling from a silence, at most one second."""
    wait = SILENCE
    while True:
        yield wait
        wait = min(2.0 * wait, LONGEST_WAIT)


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
    memory: int = 16 * 1024 * 1024
    """Bytes of names and types that are kept of the simulator: no time, and a limit all the same."""

    def __post_init__(self) -> None:
        if self.memory <= 0:
            raise ValueError(f"memory limit must be a positive number of bytes, got {self.memory!r}")
        for name in (each.name for each in fields(self) if each.name != "memory"):
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
