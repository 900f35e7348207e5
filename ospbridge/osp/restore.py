"""Reading from the value repository what a lost or cut completion held.

Every interface value also stands in the repository, under ``/Sim/<agent>/...``, with its interface name as its type
(observed on a NERD server; a server of the document may type them otherwise, and is then searched by name). Texts have
15 digits there, so float32 comes back bit-equal; servers that print fewer lose what they round.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from ospbridge.errors import OutputsIncomplete
from ospbridge.osp.lists import forget_ids, list_values
from ospbridge.osp.messages import StepCompleted, Truncated
from ospbridge.osp.queries import get_values, pause
from ospbridge.osp.wire import number

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ospbridge.interface import AgentInterface, ValueEntry
    from ospbridge.osp.client import ClientMachine, Exchange

__all__ = ["complete_from_repository", "find_interface_values", "restore"]

READINGS: Final = 5
"""Of the same values, until two in a row agree."""
UNCHANGED: Final = 2.0
"""Seconds behind the request after which readings equal to the last observation are believed: some clocks move when a
step begins, and the values when it ends."""
LONGEST_PATH: Final = 1024
"""Characters of a variable's name that may stand for an interface value."""


def restore(
    m: ClientMachine, agents: Sequence[AgentInterface], sent_at: float
) -> Exchange[dict[int, StepCompleted]]:
    """The completions of a step that ran, by local agent id. ``sent_at``: when its latest request was sent.

    Raises StepUncertain where a value is not in the repository or stands there for two, or readings do not agree;
    QueryTimeout.
    """
    try:
        found: dict[int, StepCompleted] = {}
        for _ in range(READINGS):
            before, found = found, (yield from _read(m, dict.fromkeys(agents)))
            if found != before:
                continue
            if m.now - sent_at >= UNCHANGED or not all(map(m.episode.repeats, found.values())):
                return found
            yield from pause(m, sent_at + UNCHANGED - m.now)
            found = {}
    except OutputsIncomplete as error:
        raise m.uncertain(error.message) from None
    raise m.uncertain("a completion is lost, and what the repository shows changes from reading to reading")


def complete_from_repository(
    m: ClientMachine, agent: AgentInterface, cut: Truncated
) -> Exchange[tuple[StepCompleted, bool]]:
    """A completion that the server cut at its datagram limit, and whether events were among what is missing.

    Raises OutputsIncomplete where what is missing is not in the repository.
    """
    message = cut.message
    assert isinstance(message, StepCompleted)
    try:
        whole = (yield from _read(m, {agent: message}))[agent.id]
    except OutputsIncomplete as error:
        m.episode.doubt = error.message
        raise
    return whole, message.announced is not None and len(message.events) < message.announced[2]


def _read(
    m: ClientMachine, agents: dict[AgentInterface, StepCompleted | None]
) -> Exchange[dict[int, StepCompleted]]:
    """One reading of what agents brought, but for what is known of each already. Raises OutputsIncomplete."""
    wanted: dict[int, list[int]] = {}
    for agent, cut in agents.items():
        there = 0 if cut is None else len(cut.outputs) + len(cut.infos)
        wanted[agent.id] = yield from _ids(m, agent, there)
    texts = yield from get_values(m, [value_id for ids in wanted.values() for value_id in ids])
    return {agent.id: _completion(m, agent, cut, wanted[agent.id], texts) for agent, cut in agents.items()}


def _names(agent: AgentInterface) -> list[str]:
    return [value.name for value in (*agent.outputs, *agent.infos)]


def _ids(m: ClientMachine, agent: AgentInterface, there: int) -> Exchange[list[int]]:
    """Local ids of the agent's outputs and infos from number ``there`` on."""
    names = _names(agent)
    if there >= len(names):
        return []
    if not (m.values.listed or m.values.silent):
        yield from list_values(m, ".*")
        m.values.listed = True
    others = frozenset(m.agent_names.values()) - {agent.name}
    found = find_interface_values(m.values.entries.values(), agent.name, names, others=others)
    # Whose number is read cannot be told where several of the agent's values have one name.
    called = Counter([*names, *(value.name for value in agent.inputs)])
    ids = [
        value_id
        for name, value_id in zip(names[there:], found[there:], strict=True)
        if value_id is not None and called[name] == 1
    ]
    if len(ids) < len(names) - there:
        raise _incomplete(agent, len(names) - there - len(ids))
    return ids


def _completion(
    m: ClientMachine,
    agent: AgentInterface,
    cut: StepCompleted | None,
    ids: Sequence[int],
    texts: dict[int, str],
) -> StepCompleted:
    """What the texts say, behind what a cut completion has."""
    outputs = len(agent.outputs)
    values = np.empty(outputs + len(agent.infos), np.float32)
    there = len(values) - len(ids)
    if cut is not None:
        values[:there] = np.concatenate([cut.outputs, cut.infos])[:there]
    for at, value_id in enumerate(ids, start=there):
        if value_id not in texts:
            forget_ids(m)
            raise _incomplete(agent, len(ids))
        try:
            with np.errstate(over="ignore"):
                values[at] = number(texts[value_id])
        except ValueError:
            raise OutputsIncomplete(
                f"{_names(agent)[at]} of agent {agent.name!r} reads {texts[value_id]!r} in the repository of {m.peer}, "
                "expected a number"
            ) from None
    values.flags.writeable = False
    return StepCompleted(agent.id, values[:outputs], values[outputs:], cut.events if cut is not None else ())


def _incomplete(agent: AgentInterface, missing: int) -> OutputsIncomplete:
    return OutputsIncomplete(
        f"a completion of agent {agent.name!r} was lost or cut, and {missing} of its values cannot be read back: not "
        "found in the repository, or found for more than one agent or value",
        hint="split the agent into smaller ones, or raise the simulator's datagram limit; nothing is read back from a "
        "simulator that shows no such values",
    )


# --- interface values in the repository ------------------------------------------------------------------------------


def find_interface_values(
    values: Iterable[ValueEntry], agent: str, names: Sequence[str], *, others: Collection[str] = ()
) -> list[int | None]:
    """Local ids of an agent's interface values, in the order of ``names``; None where there is not exactly one.

    By type where servers type them so, else by the name, or the end of it. Agents of equal interface are told apart by
    the agent's name as a part of the path; what stands alone needs none, where it has that of none of the ``others``.
    """
    wanted = set(names)
    candidates: dict[str, list[ValueEntry]] = {}
    for entry in values:
        name = _named(entry, wanted)
        if name is not None:
            candidates.setdefault(name, []).append(entry)
    return [_only(candidates.get(name, ()), agent, name, others) for name in names]


def _named(entry: ValueEntry, wanted: set[str]) -> str | None:
    """Which of the ``wanted`` interface values a variable may be: "/Sim/Robot/Knee/Angle" ends with "Knee/Angle"."""
    if entry.type in wanted:
        return entry.type
    path = entry.name
    tails = [path]
    if len(path) <= LONGEST_PATH:
        tails += [path[at:] for slash, c in enumerate(path) if c == "/" for at in (slash, slash + 1)]
    return next((tail for tail in tails if tail in wanted), None)


def _only(candidates: Sequence[ValueEntry], agent: str, name: str, others: Collection[str]) -> int | None:
    typed = [entry for entry in candidates if entry.type == name] or [
        # A short name may stand for something else further below its agent.
        entry
        for entry in candidates
        if name.startswith("/") or entry.name == name or entry.name.endswith(f"/{agent}/{name}")
    ]
    own = [entry for entry in typed if _stands_at(entry, agent, name)]
    if not own and len(typed) == 1:
        own = [entry for entry in typed if not any(_stands_at(entry, other, name) for other in others)]
    return own[0].id if len(own) == 1 else None


def _stands_at(entry: ValueEntry, agent: str, name: str) -> bool:
    """Whether the agent's name is a part of the path in front of ``name``, or of that where it is all there is."""
    if entry.name == name:
        return bool(agent) and f"/{agent}/" in f"/{name}"
    path = entry.name.removesuffix(name if name.startswith("/") else f"/{name}")
    return f"/{agent}/" in (f"{path}/" if path.startswith("/") else f"/{path}/")
