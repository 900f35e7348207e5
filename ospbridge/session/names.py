"""What callers name: agents, variables and events, and arguments that are looked at before anything is sent."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Mapping
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import AgentNotFound, AgentTaken, LocalProtocolError, UsageError, ValueNotFound
from ospbridge.interface import ValueReading, chosen
from ospbridge.osp import queries
from ospbridge.osp.clock_reading import write_value
from ospbridge.osp.lists import find_value, forget_ids
from ospbridge.osp.timing import Limits
from ospbridge.osp.wire import INT_MAX, INT_MIN
from ospbridge.task.variables import components_in

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from ospbridge.interface import AgentEntry, Endpoint, Match, ValueEntry
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["NO_SCENE", "choose", "components", "named", "read", "write"]

NO_SCENE: Final = (
    "a simulator that was just started may have to load its scene yet; try again, or load one that has agents"
)
"""What to do about a simulator that offers no agents at all."""
NO_VECTORS: Final = frozenset({"Int", "Integer", "Double", "NormalizedDouble", "Bool", "String", "FileName"})
"""Types whose contents need not be looked at."""

# --- arguments ------------------------------------------------------------------------------------------------------


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


# --- agents ---------------------------------------------------------------------------------------------------------


def choose(
    agents: Sequence[AgentEntry],
    patterns: Sequence[str],
    *,
    server: Endpoint,
    mine: Container[str],
    available: bool,
    meant: Sequence[Match] = (),
) -> tuple[str, ...]:
    """Names of agents that fit one of ``patterns``; none given: every available agent, or one of ``mine``.

    ``meant``: of those that fit, what these mean; where they mean none, all.
    ``available``: where all that fit a pattern are taken by others, that is an error. Of several agents of one name one
    is meant.
    """
    if not patterns:
        agents = _among(agents, meant)
        free = tuple(dict.fromkeys(entry.name for entry in agents if entry.available or entry.name in mine))
        if not free and agents:
            taken = [entry.name for entry in agents]
            raise AgentTaken(
                f"every agent of {server} is controlled by other clients: {', '.join(taken)}", agents=taken
            )
        if not free:
            raise AgentNotFound(f"{server} offers no agents at all", hint=NO_SCENE)
        return free
    names: list[str] = []
    for pattern in patterns:
        names_meant = chosen([entry.name for entry in agents], (pattern,))
        hits = _among([entry for entry in agents if entry.name in names_meant], meant)
        if not hits:
            raise unknown_agent(agents, pattern, server=server)
        usable = [e.name for e in hits if e.available or e.name in mine]
        if available and not usable:
            held = [e.name for e in hits]
            raise AgentTaken(
                f"agent {', '.join(held)} of {server} is controlled by another client", agents=held
            )
        names += usable
    return tuple(dict.fromkeys(names))


def _among(agents: Sequence[AgentEntry], meant: Sequence[Match]) -> Sequence[AgentEntry]:
    """Those that are meant, where any is."""
    ids = {entry.id for kind in meant for entry in kind.among(agents)}
    return [entry for entry in agents if entry.id in ids] or agents


def left_out(agents: Sequence[AgentEntry], mine: Container[int], names: Container[str]) -> dict[str, int]:
    """How many more agents are free that are called like one of ``names``: a session drives one of each.

    ``mine``: ids of those it drives.
    """
    return Counter(e.name for e in agents if e.available and e.id not in mine and e.name in names)


def unknown_agent(agents: Sequence[AgentEntry], name: str, *, server: Endpoint) -> AgentNotFound:
    """The error for a name or glob that fits no agent."""
    names = [entry.name for entry in agents]
    if not names:
        return AgentNotFound(f"{server} has no agent {name!r}; it offers no agents at all", hint=NO_SCENE)
    return AgentNotFound(
        f"{server} has no agent {name!r}; it offers {', '.join(names)}", hint=_near(name, names)
    )


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


# --- variables ------------------------------------------------------------------------------------------------------


def named(m: ClientMachine, name: str) -> Exchange[ValueEntry]:
    """The variable of that name. Raises ValueNotFound."""
    text_of(name, "the name of a value", "'/Simulation/Seed'; several are named one by one")
    entry = yield from find_value(m, name)
    if entry is None:
        raise ValueNotFound(f"{m.peer} has no value {name!r}", hint=_near(name, m.values.entries))
    return entry


def read(m: ClientMachine, name: str) -> Exchange[ValueReading]:
    """A variable with its content. Raises ValueNotFound."""
    entry = yield from named(m, name)
    content = yield from queries.get_value(m, entry.id)
    if content is None:
        forget_ids(m)
        entry = yield from named(m, name)
        content = yield from queries.get_value(m, entry.id)
    if content is None:
        raise _forgotten(m, name)
    return ValueReading(entry.name, entry.type, content)


def components(m: ClientMachine, names: Iterable[str]) -> Exchange[dict[str, int]]:
    """How many components each has that is a vector; without those that are none, or are not there."""
    found: dict[str, int] = {}
    for name in names:
        entry = yield from find_value(m, name)
        if entry is None or entry.type in NO_VECTORS:
            continue
        if count := components_in((yield from read(m, name)).value):
            found[name] = count
    return found


def write(m: ClientMachine, name: str, content: str) -> Exchange[None]:
    """Set a variable. Raises ValueNotFound, ValueRejected."""
    text_of(content, "the content of a value", "'0.25': values travel as text")
    yield from named(m, name)
    if not (yield from write_value(m, name, content)):
        raise _forgotten(m, name)


def _forgotten(m: ClientMachine, name: str) -> ValueNotFound:
    return ValueNotFound(f"{m.peer} does not know value {name!r} any more")
