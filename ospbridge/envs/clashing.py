"""Why an environment cannot be made beside those that this process has already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import AgentsInUse, AgentTaken, UsageError
from ospbridge.osp.profile import profile_named
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from ospbridge.envs.sharing import SharedSession
    from ospbridge.interface import Endpoint

__all__ = ["check_profile", "check_trace", "in_use", "of_another_thread"]


def check_profile(shared: SharedSession, asked: str) -> None:
    """Raises UsageError where the session that is there speaks another one."""
    wanted, spoken = profile_named(asked), shared.profile
    if wanted is not None and wanted is not spoken:
        raise UsageError(
            f"profile={asked!r} was given, but {_taken_before(shared)}, which speaks {spoken.name!r}",
            hint=f"give this one profile={spoken.name!r} or leave it out, or close the earlier one first",
        )


def check_trace(shared: SharedSession, asked: Path | None) -> None:
    """Raises UsageError where the session that is there writes another one, or none.

    Where none is asked for, one that is written anyway does no harm.
    """
    if asked is None or (shared.trace is not None and shared.trace.path.resolve() == asked.resolve()):
        return
    written = "no trace" if shared.trace is None else f"its trace to {str(shared.trace.path)!r}"
    raise UsageError(
        f"trace={str(asked)!r} was given, but {_taken_before(shared)}, which writes {written}",
        hint="give trace to the environment that is made first, or close that one first",
    )


def _taken_before(shared: SharedSession) -> str:
    return (
        f"an environment made earlier in this thread has agent {shared.agent.name!r} of {shared.terms.simulator}, "
        "and this one shares its session"
    )


def in_use(shared: SharedSession, patterns: Sequence[str], *, alone: bool) -> AgentsInUse:
    """The error for a second environment of a thread, which would wait for the first one.

    ``alone``: each of the two has, or wants, a single agent.
    """
    held = "agents" if len(shared.agents) > 1 else "agent"
    names = listed(repr(agent.name) for agent in shared.agents)
    wanted = ", ".join(map(repr, patterns)) or "whichever is free"
    return AgentsInUse(
        f"an environment of this thread steps {held} {names} of {shared.terms.simulator}; "
        f"a second one, for {wanted}, would wait for it for ever",
        # Who has made an environment of several, or is about to, needs no telling that there are such.
        hint=""
        if alone
        else "close that one first, or have one environment for all agents that are to step together; others may "
        "attach to `ospbridge connect`, each from a process of its own",
    )


def of_another_thread(
    error: AgentTaken, simulator: Endpoint, every: Iterable[SharedSession]
) -> AgentTaken | None:
    """The same with the environments of this process that have these agents; None where it has no such."""
    names = {
        agent.name for shared in every if shared.session.server == simulator for agent in shared.agents
    }.intersection(error.agents)
    if not names:
        return None
    return AgentTaken(
        f"{error.message}; an environment that another thread of this process made has {listed(sorted(names))}",
        hint="close that one first, or use it here too, one thread at a time",
        agents=error.agents,
    )
