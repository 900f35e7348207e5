"""Which agents somebody may take: by name, by shell glob, or because no other is free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ospbridge.errors import AgentNotFound, AgentTaken, UsageError
from ospbridge.interface import chosen
from ospbridge.text import listed
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ospbridge.daemon.attachment import Attachment, Driver, HeldAgent
    from ospbridge.interface import Match

__all__ = ["OUT_OF_REACH", "choose", "unknown"]

OUT_OF_REACH: Final = (
    "stop that client, and start the daemon again; or, if it died, free all agents with `ospbridge "
    "restart-communication`, and the daemon takes them (it disconnects every client)"
)
"""What to do about an agent that another client of the simulator controls."""


def choose(
    agents: Mapping[str, HeldAgent],
    patterns: Sequence[str],
    driver: Driver,
    meant: Sequence[Match] = (),
    foreign: Collection[str] = (),
) -> list[HeldAgent]:
    """The agents that fit, all or none; without patterns the only free one. Where several fit, what is ``meant``.

    Raises AgentNotFound, AgentTaken where another process has one of them, or one is ``foreign`` (another client of the
    simulator has it), UsageError where several are free.
    """
    wanted: list[HeldAgent] = []
    for pattern in patterns:
        hits = _among(_fitting(agents, pattern, foreign), meant)
        wanted += [held for held in hits.values() if held not in wanted]
    if not patterns:
        wanted = [_only_free(_among(agents, meant), driver)]
    for held in wanted:
        holder = _holder(held, driver)
        if holder is not None:
            raise _taken(held, holder)
    return wanted


def unknown(agents: Iterable[str], name: str) -> AgentNotFound:
    """The error for a name or glob that fits none of the daemon's agents."""
    names = list(agents)
    return AgentNotFound(
        f"the daemon has no agent {name!r}; it has {listed(names) or 'none at all'}",
        hint=nearest(name, names)
        or "`ospbridge status` lists the daemon's agents, `ospbridge connect --agent GLOB` chooses them",
    )


def _among(agents: Mapping[str, HeldAgent], meant: Sequence[Match]) -> Mapping[str, HeldAgent]:
    """Those that are meant, where any is."""
    interfaces = [held.interface for held in agents.values()]
    names = {interface.name for kind in meant for interface in kind.among(interfaces)}
    return {name: held for name, held in agents.items() if name in names} or agents


def _fitting(
    agents: Mapping[str, HeldAgent], pattern: str, foreign: Collection[str]
) -> Mapping[str, HeldAgent]:
    hits = {name: agents[name] for name in chosen(agents, (pattern,))}
    if not hits and (theirs := chosen(sorted(foreign), (pattern,))):
        raise AgentTaken(
            f"the daemon does not have agent {theirs[0]!r}: another client of the simulator controls it",
            hint=OUT_OF_REACH,
            agents=theirs,
        )
    if not hits:
        raise unknown(agents, pattern)
    return hits


def _holder(held: HeldAgent, asking: Driver) -> Attachment | None:
    """Who keeps the agent from another process; environments of one process share it."""
    return next((a for a in held.attachments if not a.driver.same_process(asking)), None)


def _only_free(agents: Mapping[str, HeldAgent], driver: Driver) -> HeldAgent:
    free = [held for held in agents.values() if not held.attachments]
    own = [held for held in agents.values() if held.attachments and not _holder(held, driver)]
    if len(free) == 1 or (not free and len(own) == 1):
        return (free or own)[0]
    if free:
        names = listed(held.interface.name for held in free)
        raise UsageError(f"the daemon has several free agents: {names}", hint="name one, agent=NAME")
    taken = [_taken(held, holder) for held in agents.values() if (holder := _holder(held, driver))]
    raise (
        taken[0]
        if len(taken) == 1
        else AgentTaken(
            f"every agent of the daemon is taken: {listed(agents)}",
            hint="`ospbridge status` shows by whom",
        )
    )


def _taken(held: HeldAgent, holder: Attachment) -> AgentTaken:
    return AgentTaken(
        f"agent {held.interface.name!r} is driven by {holder.driver}",
        hint="choose another agent, `ospbridge status` lists them; or close that environment, or, where an upstream "
        "drives it, choose that one's agents with --rllink-agents (or `agents` of its [[rllink]])",
    )
