"""What a probe says, and what it needs to be tried at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.diagnosis.stage import Stage

__all__ = ["Deviation", "Finding", "Verdict", "not_seen", "not_tried", "seen"]


class Verdict(Enum):
    """What became of a deviation."""

    SEEN = "seen"
    NOT_SEEN = "not seen"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict and what it rests on: what was observed, or why nothing could be."""

    verdict: Verdict
    detail: str


def seen(detail: str) -> Finding:
    """The server does what the deviation says."""
    return Finding(Verdict.SEEN, detail)


def not_seen(detail: str) -> Finding:
    """The server does otherwise."""
    return Finding(Verdict.NOT_SEEN, detail)


def not_tried(detail: str) -> Finding:
    """It could not be tried, or what came tells nothing."""
    return Finding(Verdict.NOT_TRIED, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """Something that real servers do otherwise than the document of OSP 1.1 says, or where it says nothing.

    ``document`` and ``server`` are what the text says and what a NERD server was seen to do. ``probe`` finds out.
    ``invasive``: it ends the sessions of other clients, or needs a second client of our own. ``alone``: no other
    client may control an agent meanwhile, because it votes, or because what it asks may make the server log a warning
    (several clients at once that do so can kill a NERD server). ``agents``: how many free agents it takes.
    """

    id: str
    title: str
    document: str
    server: str
    probe: Callable[[Stage], Finding]
    invasive: bool = False
    alone: bool = False
    agents: int = 0
