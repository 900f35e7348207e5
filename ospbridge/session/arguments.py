"""What a program gives a session, looked at before anything is sent: the protocol would tell it in its own words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from operator import index
from pathlib import Path

from ospbridge.errors import LocalProtocolError, UsageError
from ospbridge.osp.timing import Limits
from ospbridge.osp.wire import INT_MAX, INT_MIN

__all__ = [
    "agent_name",
    "limits_of",
    "need_mapping",
    "no_path",
    "place_of",
    "seed_of",
    "text_of",
    "value_name",
]


def seed_of(given: object) -> int:
    """An int32 of whatever kind of integer, such as numpy's. Raises LocalProtocolError for anything else."""
    try:
        seed = int(index(given))  # type: ignore[arg-type]  # what is none is told
    except TypeError:
        seed = INT_MAX + 1
    if not INT_MIN <= seed <= INT_MAX:
        raise LocalProtocolError(
            f"a seed must be an integer from {INT_MIN} to {INT_MAX}, got {given!r}",
            hint="0 means: don't care",
        )
    return seed


def text_of(given: object, what: str, example: str) -> str:
    """A text as it is. Raises LocalProtocolError for anything else, which ``what`` tells and ``example`` mends."""
    if not isinstance(given, str):
        raise LocalProtocolError(f"{what} must be a string, got {given!r}", hint=f"for instance {example}")
    return given


def agent_name(given: object) -> str:
    """The same. Raises LocalProtocolError for what is no text."""
    return text_of(
        given, "the name of an agent", "'robot1'; several are named one by one: 'robot1', 'robot2'"
    )


def value_name(given: object) -> str:
    """The same. Raises LocalProtocolError for what is no text."""
    return text_of(given, "the name of a value", "'/Simulation/Seed'; several are named one by one")


def need_mapping(actions: object) -> None:
    """Raises LocalProtocolError for what are no inputs by the names of agents."""
    if not isinstance(actions, Mapping):
        raise LocalProtocolError(
            f"a step needs a mapping from the name of each controlled agent to its inputs, got {actions!r}",
            hint="for instance {'robot1': [0.0, 0.0]}; `BlockingSession.step_one` takes the inputs of the only agent",
        )


def limits_of(given: Limits | None) -> Limits:
    """The usual ones where none are given. Raises UsageError for anything else."""
    if given is not None and not isinstance(given, Limits):
        raise UsageError(
            f"limits must be a Limits, got {given!r}",
            hint="for instance ospbridge.osp.timing.Limits(step=5.0)",
        )
    return given or Limits()


def no_path(trace: object) -> None:
    """Raises UsageError for the name of a file: environments take that, sessions what writes to it."""
    if isinstance(trace, str | os.PathLike):
        raise UsageError(
            f"trace must be a TraceWriter, got {trace!r}",
            hint="open one with ospbridge.observe.trace.TraceWriter(FILE), and close it after the session",
        )


def place_of(leases: str | os.PathLike[str] | None) -> Path | None:
    """The directory of leases; None: the usual one."""
    return None if leases is None else Path(leases)
