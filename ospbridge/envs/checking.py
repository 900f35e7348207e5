"""A scenario held against a running simulator: whether everything that it names exists there.

It looks and asks, and changes nothing: no agent is controlled, no value is set. Whether an event exists can only be
asked by registering for it, which is given back, and left out where that would endanger the server: there the listener
stays for as long as the server lives, and giving it back does not help.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ScenarioInvalid
from ospbridge.osp.codes import ITERATIONS, TIME_STEP_SIZE
from ospbridge.osp.wire import number
from ospbridge.task.making import make_task, task_class
from ospbridge.task.scenario import SourceKind
from ospbridge.task.variables import component_hint, components_in, number_in, source
from ospbridge.task.vectors import note_misused, spelled_out, undecided
from ospbridge.text import listed
from ospbridge.toml.nearest import nearest
from ospbridge.toml.tables import Mistakes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ospbridge.interface import AgentInterface
    from ospbridge.session.blocking import BlockingSession
    from ospbridge.task.scenario import AgentScenario, Scenario, Source

__all__ = ["Findings", "held_against", "importable", "misused_vectors"]

WHOLE: Final = ("Int", "Integer")
"""Types of variables that take whole numbers only, as servers of both profiles call them."""
TRUTHS: Final = ("t", "f", "true", "false")
"""What a variable of type Bool takes, in whichever case."""


@dataclass(slots=True)
class Findings:
    """``mistakes``; the names of the ``agents`` that match; ``unchecked``: what could not be looked at, and why."""

    mistakes: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def misused_vectors(scenario: Scenario) -> list[str]:
    """Vectors of real robots that expressions use as numbers; no simulator is needed to know these."""
    mistakes = Mistakes()
    if undecided(scenario.agent):
        from ospbridge.simulator.robots import known_vectors

        note_misused(scenario, known_vectors(), mistakes)
    return mistakes.found


def importable(scenario: Scenario) -> list[str]:
    """What is wrong with the classes that the scenario names; they are imported."""
    found: list[str] = []
    for table in scenario.agent:
        try:
            task_class(table.task)
        except ScenarioInvalid as error:
            found += error.mistakes
    return found


def held_against(scenario: Scenario, session: BlockingSession) -> Findings:
    """Every mistake that this simulator shows."""
    findings = Findings()
    mistakes = Mistakes()
    entries = session.agents()
    agents = [session.describe(entry.name) for entry in entries]
    vectors = session.components(undecided(scenario.agent))
    note_misused(scenario, vectors, mistakes)
    if not mistakes.found:
        scenario = spelled_out(scenario, vectors)
    for at, table in enumerate(scenario.agent):
        matching = [agent for agent in agents if scenario.for_agent(agent) is table]
        if not matching:
            mistakes.note(f"agent[{at}].match", f"no agent is {table.match}", _offered(table, agents))
        findings.agents += [agent.name for agent in matching]
        for agent in matching:
            try:
                make_task(scenario, agent, bounded=session.profile.outputs_normalised)
            except ScenarioInvalid as error:
                mistakes.found += [_placed(mistake, at, agent.name) for mistake in error.mistakes]
    _look_at_values(scenario, session, vectors, mistakes)
    _look_at_clock(scenario, session, mistakes)
    _look_at_events(scenario, session, mistakes, findings.unchecked)
    findings.mistakes = mistakes.found
    return findings


def _placed(mistake: str, at: int, agent: str) -> str:
    """What does not fit an agent, told of the table that it matches."""
    what = mistake.removeprefix(f"agent {agent!r}: ")
    return mistake if what == mistake else f"agent[{at}].{what}, for agent {agent!r}"


def _offered(table: AgentScenario, agents: list[AgentInterface]) -> str:
    names = [agent.name for agent in agents]
    offered = listed(f"{agent.name!r} of type {agent.type!r}" for agent in agents[:6])
    return nearest(table.match.name, names) or (f"there are {offered}" if offered else "it offers no agents")


def _look_at_values(
    scenario: Scenario, session: BlockingSession, vectors: Mapping[str, int], mistakes: Mistakes
) -> None:
    """``vectors``: variables that may be named without a component, and are no mistake then."""
    sources: list[tuple[str, Source]] = []
    for at, table in enumerate(scenario.agent):
        for short, found in table.names.items():
            # Of whole vectors it is told already where an expression uses them.
            if found.kind is SourceKind.VALUE and (found.component is not None or found.name not in vectors):
                sources.append((f"agent[{at}].names.{short}", found))
        observed = f"agent[{at}].observe.values"
        each = (source(SourceKind.VALUE, name) for name in table.observe.values)
        sources += [(observed, s) for s in each if s.component is not None or s.name not in vectors]
    if not (scenario.values or scenario.randomise or sources):
        return
    known = {entry.name: entry.type for entry in session.values()}
    _look_at_settings(scenario, known, session, mistakes)
    for where, found in sources:
        if found.name not in known:
            mistakes.note(where, f"the simulator has no value {found.name!r}", nearest(found.name, known))
            continue
        text = session.get(found.name).value
        try:
            number_in(text, found.component)
        except ValueError:
            component = "" if found.component is None else f"#{found.component}"
            told = f"'{found.name}{component}' is {text!r}, which is no number"
            mistakes.note(where, told, component_hint(found, text))


def _look_at_settings(
    scenario: Scenario, known: Mapping[str, str], session: BlockingSession, mistakes: Mistakes
) -> None:
    """Whether variables that are set are there, and take what they are set to; ``known`` has their types."""
    for where, names in (("values", scenario.values), ("randomise", scenario.randomise)):
        for name in names:
            if name not in known:
                mistakes.note(
                    f"{where}.{name!r}", f"the simulator has no value {name!r}", nearest(name, known)
                )
    for name, text in scenario.values.items():
        if known.get(name) in WHOLE and not _is_whole(text):
            mistakes.note(f"values.{name!r}", f"expected a whole number ({known[name]}), got {text!r}")
        elif known.get(name) == "Double" and not _is_number(text):
            mistakes.note(f"values.{name!r}", f"expected a number (Double), got {text!r}")
        elif known.get(name) == "Bool" and text.lower() not in TRUTHS:
            mistakes.note(f"values.{name!r}", f"expected true or false (Bool), got {text!r}")
    there = [name for name in scenario.values if name in known]
    for name, count in session.components(there).items():
        text = scenario.values[name]
        if components_in(text) != count:
            mistakes.note(
                f"values.{name!r}",
                f"expected {count} components ({known[name]}), got {text!r}",
                f"write them as a list, such as [{', '.join(['0'] * count)}]",
            )
    for name in scenario.randomise:
        if known.get(name) in WHOLE:
            what = f"what is drawn has decimals, and the variable is a whole number ({known[name]})"
            mistakes.note(f"randomise.{name!r}", what, "draw it in a class: start_values")
        elif name in known and not _is_number(held := session.get(name).value):
            mistakes.note(f"randomise.{name!r}", f"it is {held!r}, and no number that could be drawn")


def _is_whole(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _look_at_clock(scenario: Scenario, session: BlockingSession, mistakes: Mistakes) -> None:
    sets = TIME_STEP_SIZE in scenario.values
    if scenario.time_step is None or (sets and not _tells_time(scenario)):
        return
    known = {entry.name for entry in session.values("/Simulation/.*")}
    if not {TIME_STEP_SIZE, ITERATIONS} <= known:
        return
    said = [scenario.values.get(name) or session.get(name).value for name in (TIME_STEP_SIZE, ITERATIONS)]
    try:
        size, iterations = map(number, said)
    except ValueError:
        return  # which is told of the variable
    step = size * iterations
    if abs(step - scenario.time_step) > 1e-6 * step:
        told = f"{scenario.time_step:g} s, a step of the simulator takes {step:g} s"
        if sets:
            mistakes.note(
                f"values.'{TIME_STEP_SIZE}'",
                f"time counts {told}: {iterations:g} iterations",
                f"say time_step = {step:g} at the top",
            )
        else:
            mistakes.note("time_step", f"is {told}")


def _tells_time(scenario: Scenario) -> bool:
    """Whether an expression looks at the time; no short name is called so."""
    episodes = (table.episode for table in scenario.agent)
    expressions = (each for e in episodes for each in (e.reward, e.terminated, e.truncated))
    return any(re.search(r"\btime\b", each or "") for each in expressions)


def _look_at_events(
    scenario: Scenario, session: BlockingSession, mistakes: Mistakes, unchecked: list[str]
) -> None:
    events = {name: at for at, table in enumerate(scenario.agent) for name in table.episode.terminated_on}
    if events and not session.profile.end_after_events_is_safe:
        unchecked.append(
            f"events were not tried ({', '.join(events)}): this kind of simulator can die of a client that "
            "registered for an event, also after it has left"
        )
        return
    for name, at in events.items():
        if session.register_event(name):
            session.deregister_event(name)
        else:
            mistakes.note(
                f"agent[{at}].episode.terminated_on",
                f"the simulator has no event {name!r}",
                "events must be named exactly; see the simulator's own documents",
            )
