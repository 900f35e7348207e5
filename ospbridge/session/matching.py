"""Which agents of an overview are meant by names and shell globs, and the errors where none is."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Final

from ospbridge.errors import AgentNotFound, AgentTaken
from ospbridge.interface import chosen

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from ospbridge.interface import AgentEntry, Endpoint, Match

__all__ = ["NO_SCENE", "choose", "left_out", "unknown"]

NO_SCENE: Final = (
    "a simulator that was just started may have to load its scene yet; try again, or load one that has agents"
)
"""What to do about a simulator that offers no agents at all."""


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
        agents = among(agents, meant)
        free = tuple(dict.fromkeys(entry.name for entry in agents if entry.available or entry.name in mine))
        if not free:
            taken = [entry.name for entry in agents]
            if taken:
                raise AgentTaken(
                    f"every agent of {server} is controlled by other clients: {', '.join(taken)}",
                    agents=taken,
                )
            raise AgentNotFound(f"{server} offers no agents at all", hint=NO_SCENE)
        return free
    names: list[str] = []
    for pattern in patterns:
        names_meant = chosen([entry.name for entry in agents], (pattern,))
        hits = among([entry for entry in agents if entry.name in names_meant], meant)
        if not hits:
            raise unknown(agents, pattern, server=server)
        usable = [e.name for e in hits if e.available or e.name in mine]
        if available and not usable:
            held = [e.name for e in hits]
            raise AgentTaken(
                f"agent {', '.join(held)} of {server} is controlled by another client", agents=held
            )
        names += usable
    return tuple(dict.fromkeys(names))


def among(agents: Sequence[AgentEntry], meant: Sequence[Match]) -> Sequence[AgentEntry]:
    """Those that are meant, where any is."""
    ids = {entry.id for kind in meant for entry in kind.among(agents)}
    return [entry for entry in agents if entry.id in ids] or agents


def left_out(agents: Sequence[AgentEntry], mine: Container[int], names: Container[str]) -> dict[str, int]:
    """How many more agents are free that are called like one of ``names``: a session drives one of each.

    ``mine``: ids of those it drives.
    """
    return Counter(e.name for e in agents if e.available and e.id not in mine and e.name in names)


def unknown(agents: Sequence[AgentEntry], name: str, *, server: Endpoint) -> AgentNotFound:
    """The error for a name or glob that fits no agent."""
    names = [entry.name for entry in agents]
    near = difflib.get_close_matches(name, names, n=1)
    if not names:
        return AgentNotFound(f"{server} has no agent {name!r}; it offers no agents at all", hint=NO_SCENE)
    return AgentNotFound(
        f"{server} has no agent {name!r}; it offers {', '.join(names)}",
        hint=f"did you mean {near[0]!r}?" if near else "",
    )
