"""What `ospbridge doctor` says of one thing: whether it is well, and the fix where it is not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Check", "State", "advice", "problem", "skipped", "well"]


class State(Enum):
    """How a thing stands."""

    WELL = "ok"
    ADVICE = "advice"
    """It works, and would work better otherwise."""
    PROBLEM = "problem"
    """It needs mending."""
    SKIPPED = "skipped"
    """Nothing to look at, or it could not be looked at."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at. ``fix`` is what to do about advice and problems; empty else.

    ``lines`` is ``detail`` for people where it has several parts: a head, and a line for each.
    """

    subject: str
    state: State
    detail: str
    fix: str = ""
    lines: tuple[str, ...] = ()


def well(subject: str, detail: str) -> Check:
    """As it should be."""
    return Check(subject, State.WELL, detail)


def advice(subject: str, detail: str, fix: str) -> Check:
    """It works, and would work better otherwise."""
    return Check(subject, State.ADVICE, detail, fix)


def problem(subject: str, detail: str, fix: str, lines: tuple[str, ...] = ()) -> Check:
    """It needs mending."""
    return Check(subject, State.PROBLEM, detail, fix, lines)


def skipped(subject: str, detail: str) -> Check:
    """Not looked at, and why."""
    return Check(subject, State.SKIPPED, detail)
