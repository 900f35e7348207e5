"""Agents that sessions of our own were lost with, so that no other client is blamed where a simulator still has them.

A simulator lets go of a lost session's agents when it gets to it, or never; until then nobody can have them, and steps
and resets wait for their votes. Two things are known: which leases lie there, left by this or by other processes, and
which sessions this process has given up, or found dead, of late. Neither proves whose an agent is by now, so what is
told is what is known, and no more.
"""

from __future__ import annotations

from collections import Counter, deque
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple

from ospbridge.errors import AgentTaken, BarrierStuck
from ospbridge.session.lease import held_by_others, stale_leases

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from ospbridge.interface import AgentEntry, Endpoint

__all__ = [
    "explained",
    "forget",
    "found_dead",
    "given_up",
    "locked_by_the_dead",
    "stuck",
    "told_of_restart",
]

RECENT: Final = 60.0
"""Seconds for which a simulator may be letting go of agents whose handler is gone."""
KEPT: Final = 256
"""Losses that are remembered."""
FREE_ALL: Final = "`ospbridge restart-communication` frees all agents (it disconnects every client)"


class _Loss(NamedTuple):
    server: Endpoint
    agents: frozenset[str]
    how: str
    at: float


_losses: deque[_Loss] = deque(maxlen=KEPT)


def given_up(server: Endpoint, agents: Collection[str]) -> None:
    """A session of this process that controlled them has ended, and the simulator did not confirm its goodbye."""
    if agents:
        _losses.append(_Loss(server, frozenset(agents), "was given up", monotonic()))


def found_dead(server: Endpoint, agents: Collection[str]) -> None:
    """A dead session's handler was gone before its agents were given back."""
    if agents:
        _losses.append(_Loss(server, frozenset(agents), "was found dead", monotonic()))


def forget(server: Endpoint, agent: str) -> None:
    """It was had again since: whoever has it next has it of its own."""
    for loss in _losses.copy():
        if loss.server == server and agent in loss.agents:
            with suppress(ValueError):  # another thread may have been faster
                _losses.remove(loss)
            if len(loss.agents) > 1:
                _losses.append(loss._replace(agents=loss.agents - {agent}))


def told_of_restart(server: Endpoint, agents: Collection[str]) -> str:
    """What users are told when that was done for these agents."""
    freed = _listed(agents)
    return (
        f"the communication of {server} was restarted, which alone freed {freed} of a killed session of ours"
    )


def locked_by_the_dead(
    entries: Collection[AgentEntry], server: Endpoint, leases: Path | None, own: Path | None
) -> list[str]:
    """Agents that only a restart of the communication frees, where that provably disturbs nobody else.

    They are all that are taken, and dead sessions of ours had them, whose old handlers were silent when their leases
    were tried. ``own`` is the lease of the session that asks. Empty where another session of ours lives, or where any
    agent may be somebody else's.
    """
    taken = [entry.name for entry in entries if not entry.available]
    dead: list[str] = []
    for lease, file in stale_leases(server, leases):
        file.abandon()
        dead += lease.agents
    ours = not Counter(taken) - Counter(dead)
    return taken if taken and ours and not held_by_others(server, own, leases) else []


@contextmanager
def explained(server: Endpoint, leases: Path | None) -> Iterator[None]:
    """An AgentTaken of the body says what is known of lost sessions of our own that had these agents."""
    try:
        yield
    except AgentTaken as error:
        found = _explanation(error, server, leases)
        if found is None:
            raise
        raise found from None


def _explanation(error: AgentTaken, server: Endpoint, leases: Path | None) -> AgentTaken | None:
    known = _known(error.agents, server, leases, within=RECENT)
    if known is None:
        return None
    told, hint = known
    return AgentTaken(
        f"agent {_listed(error.agents)} of {server} is taken; {told}", hint=hint, agents=error.agents
    )


def stuck(error: BarrierStuck, server: Endpoint, leases: Path | None, *, waited: float) -> BarrierStuck:
    """``error``, or what is known of lost sessions of our own that may have agents for whose votes was ``waited``."""
    known = _known(error.agents, server, leases, within=RECENT + waited)
    if known is None:
        return error
    told, hint = known
    who = f"agent {_listed(error.agents)} must be voted for too; {told}"
    return BarrierStuck(error.what, hint=hint, who=who, agents=error.agents)


def _listed(agents: Collection[str]) -> str:
    return ", ".join(dict.fromkeys(agents))


def _known(
    agents: Collection[str], server: Endpoint, leases: Path | None, *, within: float
) -> tuple[str, str] | None:
    """What to tell of these agents, and the hint; None where nothing of ours was lost that had one of them."""
    taken = dict.fromkeys(agents)
    ours = _left_in_leases(server, leases).intersection(taken)
    if ours:
        known = "a session of ours was lost that may still have {}, and its lease is there"
        hint = f"try again: each new session says goodbye for the lost one; where nobody hears it, {FREE_ALL}"
    else:
        loss = next((x for x in reversed(_losses.copy()) if _concerns(x, server, taken, within)), None)
        if loss is None:
            return None
        ours = loss.agents.intersection(taken)
        known = f"a session of ours that may still have {{}} {loss.how} {monotonic() - loss.at:.1f} s ago"
        hint = f"try again in a moment; where it stays taken, stop whoever has it by now, or {FREE_ALL}"
    others = [name for name in taken if name not in ours]
    told = known.format(", ".join(filter(ours.__contains__, taken)) if others else "it")
    losses = _losses.copy()
    theirs = [name for name in others if not any(_concerns(loss, server, (name,), within) for loss in losses)]
    if theirs:
        told += f"; {', '.join(theirs)}: controlled by another client"
    return told, hint


def _concerns(loss: _Loss, server: Endpoint, taken: Collection[str], within: float) -> bool:
    return loss.server == server and monotonic() - loss.at < within and not loss.agents.isdisjoint(taken)


def _left_in_leases(server: Endpoint, leases: Path | None) -> frozenset[str]:
    """Agents that lost sessions, of any of our processes, had or had asked for, and that nobody has freed."""
    names: set[str] = set()
    for lease, file in stale_leases(server, leases):
        file.abandon()
        names.update(lease.agents)
    return frozenset(names)
