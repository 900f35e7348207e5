"""What callers name, looked at before anything is sent: seeds, texts, and agents by name, glob and type."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Final

from ospbridge.errors import AgentNotFound, AgentTaken, LocalProtocolError
from ospbridge.interface import chosen
from ospbridge.osp.wire import INT_MAX, INT_MIN
from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ospbridge.interface import AgentEntry, Endpoint, Match

__all__ = ["NO_SCENE", "agent_name", "choose", "seed_of", "text_of", "unknown_agent"]

NO_SCENE: Final = (
    "a simulator that was just started may have to load its scene yet; try again, or load one that has agents"
)
"""What to do about a simulator that offers no agents at all."""


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

    ``meant``: of those that fit, what these mean; where they mean none, all. ``available``: where all that fit a
    pattern are taken by others, that is an error.
    """
    all_names = [entry.name for entry in agents]
    wanted = {entry.id for kind in meant for entry in kind.among(agents)}
    names: list[str] = []
    for pattern in patterns or ("",):
        named = chosen(all_names, (pattern,)) if pattern else all_names
        hits = [entry for entry in agents if entry.name in named]
        if not hits:
            raise unknown_agent(agents, pattern, server=server)
        hits = [entry for entry in hits if entry.id in wanted] or hits
        usable = [entry.name for entry in hits if entry.available or entry.name in mine]
        if not usable and (available or not pattern):
            held = [entry.name for entry in hits]
            raise AgentTaken(
                f"agent {', '.join(held)} of {server} is controlled by another client", agents=held
            )
        names += usable
    return tuple(dict.fromkeys(names))


def unknown_agent(agents: Sequence[AgentEntry], name: str, *, server: Endpoint) -> AgentNotFound:
    """The error for a name or glob that fits no agent; ``name`` may be empty."""
    names = [entry.name for entry in agents]
    told = f"{server} has no agent {name!r}; it" if name else f"{server}"
    if not names:
        return AgentNotFound(f"{told} offers no agents at all", hint=NO_SCENE)
    return AgentNotFound(f"{told} offers {', '.join(names)}", hint=nearest(name, names, most=1))
