"""Reading back from the value repository what a lost or cut completion held.

Every interface value also stands in the repository, under ``/Sim/<agent>/...``, with its interface name as its type
(observed on a NERD server; a server of the document may type them otherwise, and is then searched by name). Texts
have 15 digits, so float32 comes back bit-equal, but for the last bit of a double that lies halfway between two; servers
that print fewer lose what they round. While our own vote is missing the world holds still.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from ospbridge.errors import OutputsIncomplete
from ospbridge.osp.client.asking import settled_value
from ospbridge.osp.client.listing import list_values
from ospbridge.osp.messages import StepCompleted, Truncated
from ospbridge.osp.number_text import number

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from ospbridge.interface import AgentInterface, ValueEntry
    from ospbridge.osp.client.machine import ClientMachine, Exchange, Reply

__all__ = ["find_interface_values", "known_ids", "list_all", "restore"]


def restore(
    m: ClientMachine,
    agent: AgentInterface,
    cut: Truncated | None,
    *,
    stray: Callable[[Reply], None] | None = None,
) -> Exchange[StepCompleted]:
    """The completion of ``agent`` for the step that just ran: all of it, or what ``cut`` lacks.

    Raises OutputsIncomplete where an interface value is not in the repository, or stands there for two agents, or
    shares its name with another one of its agent.
    """
    names = [value.name for value in (*agent.outputs, *agent.infos)]
    values: NDArray[np.float32] = np.empty(len(names), np.float32)
    there = 0
    events: tuple[int, ...] = ()
    if cut is not None:
        message = cut.message
        assert isinstance(message, StepCompleted)
        got = np.concatenate([message.outputs, message.infos])
        there = min(len(got), len(names))
        values[:there] = got[:there]
        events = message.events
    if there < len(names):
        ids = yield from _ids(m, agent, names[there:], cut, stray)
        for at, value_id in enumerate(ids, start=there):
            text = yield from settled_value(m, value_id, stray=stray)
            with np.errstate(over="ignore"):
                values[at] = _number(m, agent, names[at], text)
    outputs = len(agent.outputs)
    values.flags.writeable = False
    return StepCompleted(agent.id, values[:outputs], values[outputs:], events)


def known_ids(m: ClientMachine, agent: AgentInterface, names: Sequence[str]) -> list[int | None]:
    """``find_interface_values`` among what is known of the repository, which may be little.

    None also for a name that several of the agent's values have: it cannot be told whose number is read.
    """
    others = frozenset(m.agent_names.values()) - {agent.name}
    found = find_interface_values(m.values.values(), agent.name, names, others=others, certain=not m.listed)
    called = Counter(value.name for value in (*agent.inputs, *agent.outputs, *agent.infos))
    return [value_id if called[name] == 1 else None for name, value_id in zip(names, found, strict=True)]


def list_all(m: ClientMachine, *, stray: Callable[[Reply], None] | None = None) -> Exchange[None]:
    """Know the whole repository."""
    found = yield from list_values(m, ".*", stray=stray)
    if m.disturbed and not m.listed and _lacks_interface_values(m, found):
        # It may be a late answer to another question. If so, the second one has what this one lacks; else it is known.
        yield from list_values(m, ".*", stray=stray)
    m.listed = True


def _lacks_interface_values(m: ClientMachine, found: Sequence[ValueEntry]) -> bool:
    """Of the agents that are controlled. There are servers that show none."""
    wanted = {
        value.name
        for agent in m.controlled.values()
        for value in (*agent.inputs, *agent.outputs, *agent.infos)
    }
    return len(_by_name(found, wanted)) < len(wanted)


def _ids(
    m: ClientMachine,
    agent: AgentInterface,
    names: Sequence[str],
    cut: Truncated | None,
    stray: Callable[[Reply], None] | None,
) -> Exchange[list[int]]:
    found = known_ids(m, agent, names)
    if None in found and not m.repository_mute:
        yield from list_all(m, stray=stray)
        found = known_ids(m, agent, names)
    missing = [name for name, value_id in zip(names, found, strict=True) if value_id is None]
    if missing:
        raise OutputsIncomplete(
            f"a completion of agent {agent.name!r} was {'cut' if cut else 'lost'}, and {len(missing)} of its values "
            f"cannot be read back: {', '.join(missing[:3])}{' ...' if len(missing) > 3 else ''} not found in the "
            "repository, or found for more than one agent or value",
            hint="" if cut else "reset; nothing can be restored from a simulator that shows no such values",
        )
    return [value_id for value_id in found if value_id is not None]


def find_interface_values(
    values: Iterable[ValueEntry],
    agent: str,
    names: Sequence[str],
    *,
    others: Collection[str] = (),
    certain: bool = False,
) -> list[int | None]:
    """Local ids of an agent's interface values, in the order of ``names``; None where there is not exactly one.

    By type where servers type interface values so, else by the name, or the end of it. Agents of equal interface are
    told apart by the agent's name as a part of the path. What stands alone is the agent's also without that, unless it
    stands where one of the ``others`` does, or is to be ``certain``.
    """
    by_name = _by_name(values, set(names))
    return [_only(by_name.get(name, ()), agent, name, others, certain=certain) for name in names]


def _by_name(values: Iterable[ValueEntry], wanted: set[str]) -> dict[str, list[ValueEntry]]:
    """Which variables may be the interface value of each of the ``wanted`` names, of those that are there."""
    by_name: dict[str, list[ValueEntry]] = {}
    tails = {f"/{name}": name for name in wanted} | {name: name for name in wanted}
    for entry in values:
        if entry.type in wanted:
            by_name.setdefault(entry.type, []).append(entry)
        elif entry.name in wanted:
            by_name.setdefault(entry.name, []).append(entry)
        else:
            # "/Sim/Robot/Knee/Angle" ends with "/Knee/Angle": try each tail that begins with a slash.
            at = entry.name.find("/")
            while at >= 0:
                name = tails.get(entry.name[at:])
                if name:
                    by_name.setdefault(name, []).append(entry)
                    break
                at = entry.name.find("/", at + 1)
    return by_name


def _only(
    candidates: Sequence[ValueEntry], agent: str, name: str, others: Collection[str], *, certain: bool
) -> int | None:
    typed = [entry for entry in candidates if entry.type == name] or [
        # A short name may stand for something else further below its agent.
        entry
        for entry in candidates
        if name.startswith("/") or entry.name == name or entry.name.endswith(f"/{agent}/{name}")
    ]
    own = [entry for entry in typed if _stands_at(entry, agent, name)]
    if not own and not certain and len(typed) == 1:
        own = [entry for entry in typed if not any(_stands_at(entry, other, name) for other in others)]
    return own[0].id if len(own) == 1 else None


def _stands_at(entry: ValueEntry, agent: str, name: str) -> bool:
    """Whether the agent's name is a part of the path in front of ``name``, or of that itself where it is all there is.

    It may have slashes, or be empty.
    """
    if entry.name == name:
        return bool(agent) and f"/{agent}/" in f"/{name}"
    path = entry.name.removesuffix(name if name.startswith("/") else f"/{name}")
    return f"/{agent}/" in (f"{path}/" if path.startswith("/") else f"/{path}/")


def _number(m: ClientMachine, agent: AgentInterface, name: str, text: str | None) -> float:
    try:
        found = number(text or "")
    except ValueError:
        raise OutputsIncomplete(
            f"{name} of agent {agent.name!r} reads {text!r} in the repository of {m.peer}, expected a number"
        ) from None
    m.printing.learn(text or "")
    return found
