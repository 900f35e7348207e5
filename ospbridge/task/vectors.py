"""Variables that are vectors, where a scenario names one without a component.

In an observation it stands for all its components, in order; an expression takes one number, so that it is a mistake
there. How many components a variable has, only the simulator knows, unless the scenario itself gives that away.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ScenarioInvalid
from ospbridge.task.expressions import parse
from ospbridge.task.scenario import SourceKind
from ospbridge.task.variables import components_in, source
from ospbridge.toml.tables import Mistakes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ospbridge.task.scenario import AgentScenario, Observe, Range, Scenario

__all__ = ["named_vectors", "note_misused", "observed_vectors", "spelled_out", "undecided"]

EXPRESSIONS: Final = ("reward", "terminated", "truncated")
SHOWN: Final = 4
"""Components that a hint names."""


def undecided(tables: Iterable[AgentScenario]) -> tuple[str, ...]:
    """Variables that must be known to be vectors or not, by name."""
    found: dict[str, None] = {}
    for table in tables:
        found.update(dict.fromkeys(_observed(table.observe)))
        found.update(dict.fromkeys(name for name, _, _ in _in_expressions(table)))
    return tuple(found)


def named_vectors(scenario: Scenario) -> dict[str, int]:
    """Variables that are vectors as the scenario itself shows, with the components that they have at least.

    It sets such a one to a vector, or names a component behind the first.
    """
    found = {name: count for name, text in scenario.values.items() if (count := components_in(text))}
    for table in scenario.agent:
        observed = (source(SourceKind.VALUE, name) for name in table.observe.values)
        for each in (*table.names.values(), *observed):
            # The first one is also what a variable is that is a single number.
            if each.component:
                found[each.name] = max(found.get(each.name, 0), each.component + 1)
    return found


def observed_vectors(tables: Iterable[AgentScenario], names: Sequence[str]) -> dict[str, int]:
    """What vectors have components in the ``names`` of an observation that is made already."""
    found: dict[str, int] = {}
    there = frozenset(names)
    for name in undecided(tables):
        count = 0
        while f"{name}#{count}" in there:
            count += 1
        if count and name not in there:
            found[name] = count
    return found


def note_misused(scenario: Scenario, vectors: Mapping[str, int], mistakes: Mistakes) -> None:
    """Note the short names of whole vectors that expressions use; ``vectors``: how many components each has."""
    for at, table in enumerate(scenario.agent):
        for name, short, key in _in_expressions(table):
            if name in vectors:
                shown = [f"value:{name}#{component}" for component in range(vectors[name])]
                if len(shown) > SHOWN:
                    shown[SHOWN - 1 : -1] = ["..."]
                mistakes.note(
                    f"agent[{at}].names.{short}",
                    f"'value:{name}' is a vector, and episode.{key} takes one number",
                    f"name a component: {', '.join(shown)}",
                )


def spelled_out(scenario: Scenario, vectors: Mapping[str, int]) -> Scenario:
    """The scenario with the components of ``vectors`` in place of their plain names in observations.

    ``vectors``: how many components each has. Raises ScenarioInvalid where an expression uses one as a number.
    """
    if not vectors:
        return scenario
    mistakes = Mistakes()
    note_misused(scenario, vectors, mistakes)
    if mistakes.found:
        origin = scenario.origin or scenario.name
        raise ScenarioInvalid(
            f"{origin} does not fit",
            hint=f"`ospbridge check {shlex.quote(origin)} --simulator HOST:PORT` tells whether all are mended",
            mistakes=mistakes.found,
            rows=mistakes.found,
        )
    return replace(
        scenario,
        agent=tuple(
            replace(table, observe=_observing_all(table.observe, vectors)) for table in scenario.agent
        ),
    )


def _observing_all(observe: Observe, vectors: Mapping[str, int]) -> Observe:
    whole = {name for name in _observed(observe) if name in vectors}
    values: list[str] = []
    for name in observe.values:
        values += _components(name, vectors) if name in whole else [name]
    ranges: dict[str, Range] = {}
    for name, given in observe.range.items():
        for each in _components(name, vectors) if name in whole else [name]:
            # Later ones override earlier ones.
            ranges.pop(each, None)
            ranges[each] = given
    return replace(observe, values=tuple(values), range=ranges)


def _components(name: str, vectors: Mapping[str, int]) -> list[str]:
    return [f"{name}#{component}" for component in range(vectors[name])]


def _observed(observe: Observe) -> list[str]:
    """Variables that an observation has without a component."""
    return [name for name in observe.values if source(SourceKind.VALUE, name).component is None]


def _in_expressions(table: AgentScenario) -> list[tuple[str, str, str]]:
    """Variables that expressions use without a component, each with its short name and the key of an expression."""
    found: dict[str, tuple[str, str, str]] = {}
    for key in EXPRESSIONS:
        text: str | None = getattr(table.episode, key)
        if text is None:
            continue
        _, now, before = parse(text, table.names)
        for short in sorted(now | before):
            if (used := table.names[short]).kind is SourceKind.VALUE and used.component is None:
                found.setdefault(short, (used.name, short, key))
    return list(found.values())
