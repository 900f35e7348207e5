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
from ospbridge.osp.lists import find_interface_values, forget_ids, list_all
from ospbridge.osp.messages import StepCompleted, Truncated
from ospbridge.osp.queries import get_values, pause
from ospbridge.osp.wire import number

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ospbridge.interface import AgentInterface
    from ospbridge.osp.client import ClientMachine, Exchange, Reply

__all__ = ["complete_from_repository", "restore"]

READINGS: Final = 5
"""Of the same values, until two in a row agree."""
UNCHANGED: Final = 2.0
"""Seconds behind the request after which readings equal to the last observation are believed: some clocks move when a
step begins, and the values when it ends."""


def restore(
    m: ClientMachine, agents: Sequence[AgentInterface], sent_at: float, stray: Callable[[Reply], None]
) -> Exchange[dict[int, StepCompleted]]:
    """The completions of a step that ran, by local agent id. ``sent_at``: when its latest request was sent.

    Raises StepUncertain where a value is not in the repository or stands there for two, or readings do not agree;
    QueryTimeout.
    """
    try:
        found: dict[int, StepCompleted] = {}
        for _ in range(READINGS):
            before, found = found, (yield from _read(m, agents, stray))
            if found != before:
                continue
            if m.now - sent_at >= UNCHANGED or not all(map(m.episode.repeats, found.values())):
                return found
            yield from pause(m, sent_at + UNCHANGED - m.now, stray)
            found = {}
    except OutputsIncomplete as error:
        raise m.uncertain(error.message) from None
    raise m.uncertain("a completion is lost, and what the repository shows changes from reading to reading")


def _read(
    m: ClientMachine, agents: Sequence[AgentInterface], stray: Callable[[Reply], None]
) -> Exchange[dict[int, StepCompleted]]:
    """One reading. Raises OutputsIncomplete."""
    wanted = {}
    for agent in agents:
        wanted[agent.id] = yield from _ids(m, agent, 0, stray)
    texts = yield from get_values(m, [value_id for ids in wanted.values() for value_id in ids], stray=stray)
    return {agent.id: _completion(m, agent, texts, wanted[agent.id], None) for agent in agents}


def complete_from_repository(
    m: ClientMachine, agent: AgentInterface, cut: Truncated
) -> Exchange[tuple[StepCompleted, bool]]:
    """A completion that the server cut at its datagram limit, and whether events were among what is missing.

    Raises OutputsIncomplete where what is missing is not in the repository.
    """
    message = cut.message
    assert isinstance(message, StepCompleted)
    there = len(message.outputs) + len(message.infos)
    try:
        ids = yield from _ids(m, agent, there, m.unexpected)
        texts = yield from get_values(m, ids, stray=m.unexpected)
        whole = _completion(m, agent, texts, ids, message)
    except OutputsIncomplete as error:
        m.episode.doubt = error.message
        raise
    return whole, message.announced is not None and len(message.events) < message.announced[2]


def _names(agent: AgentInterface) -> list[str]:
    return [value.name for value in (*agent.outputs, *agent.infos)]


def _ids(
    m: ClientMachine, agent: AgentInterface, there: int, stray: Callable[[Reply], None]
) -> Exchange[list[int]]:
    """Local ids of the agent's outputs and infos from number ``there`` on."""
    names = _names(agent)
    if there >= len(names):
        return []
    if not m.values.silent:
        yield from list_all(m, stray=stray)
    others = frozenset(m.agent_names.values()) - {agent.name}
    found = find_interface_values(m.values.entries.values(), agent.name, names, others=others)
    # Whose number is read cannot be told where several of the agent's values have one name.
    called = Counter(value.name for value in (*agent.inputs, *agent.outputs, *agent.infos))
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
    texts: dict[int, str],
    ids: Sequence[int],
    cut: StepCompleted | None,
) -> StepCompleted:
    """What the texts say, behind what a cut completion has."""
    values = np.empty(len(agent.outputs) + len(agent.infos), np.float32)
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
    outputs = len(agent.outputs)
    return StepCompleted(agent.id, values[:outputs], values[outputs:], cut.events if cut is not None else ())


def _incomplete(agent: AgentInterface, missing: int) -> OutputsIncomplete:
    return OutputsIncomplete(
        f"a completion of agent {agent.name!r} was lost or cut, and {missing} of its values cannot be read back: not "
        "found in the repository, or found for more than one agent or value",
        hint="split the agent into smaller ones, or raise the simulator's datagram limit; nothing is read back from a "
        "simulator that shows no such values",
    )
