"""How long a client waits for an RLlink server, and how long before it comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["POLL", "RECYCLING", "Limits"]

RECYCLING: Final = 5.05
"""Seconds for which a real server listens to nobody after a connection ended, and a little more."""
POLL: Final = 0.02
"""Seconds between two questions whether the weights are new."""


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
