"""From the text of a TOML file to a scenario.

Every mistake that can be told without a simulator is reported, all at once. It is told with the file, the line where
that is known, the key path, what was expected and what came.
"""

from __future__ import annotations

import ast
import math
import re
import shlex
from contextlib import suppress
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ScenarioInvalid
from ospbridge.osp.codes import ITERATIONS, TIME_STEP_SIZE
from ospbridge.task.expressions import RESERVED, Judge, WrongExpression, parse
from ospbridge.task.scenario import (
    Action,
    ActionKind,
    AgentScenario,
    ArenaTable,
    Episode,
    GymTable,
    Match,
    NotFinite,
    Observe,
    OutOfBounds,
    OutOfRange,
    Range,
    Ranges,
    ResetObservation,
    RobotTable,
    Scenario,
    Source,
    SourceKind,
    SyntheticTable,
)
from ospbridge.task.variables import source
from ospbridge.task.vectors import named_vectors, note_misused
from ospbridge.text import pluralize
from ospbridge.toml.lines import Lines
from ospbridge.toml.nearest import nearest
from ospbridge.toml.parsing import NoToml, parsed
from ospbridge.toml.tables import Mistakes, Table, is_number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ospbridge.task.scenario import WorldTable
    from ospbridge.toml.tables import Mistakes, PerValue, Table

__all__ = ["LARGEST_FLOAT32", "as_inputs", "check_size", "invalid", "numbers_of", "positive", "read"]

LARGEST_FLOAT32: Final = (2.0 - 2.0**-23) * 2.0**127


def as_inputs(table: Table, key: str) -> PerValue | None:
    """A number for each input; infinite where there is no limit."""
    value = table.per_value(key)
    check_size(table.mistakes, table.at(key), numbers_of(value), LARGEST_FLOAT32)
    return value


def check_size(mistakes: Mistakes, where: str, numbers: Iterable[float], largest: float) -> None:
    """Note the first that is finite, and would be infinite for who takes no larger one than ``largest``."""
    beyond = next((number for number in numbers if largest < abs(number) < math.inf), None)
    if beyond is not None:
        mistakes.note(where, f"{beyond:g} is too large for a float32, which ends at {largest:g}")


def numbers_of(value: PerValue | None) -> Iterable[float]:
    """All that it says, whichever way; nothing where it is None."""
    if value is None:
        return ()
    if isinstance(value, float):
        return (value,)
    return value if isinstance(value, tuple) else value.values()


def positive(table: Table, key: str) -> PerValue | None:
    """A number for each input, all greater than 0."""
    value = as_inputs(table, key)
    if any(number <= 0.0 for number in numbers_of(value)):
        table.mistakes.note(table.at(key), "must be greater than 0")
    return value


WORLDS: Final[dict[str, type[WorldTable]]] = {
    "gym": GymTable,
    "arena": ArenaTable,
    "synthetic": SyntheticTable,
    "robot": RobotTable,
}
ROBOTS: Final = ("ASeries", "Volksbot")
"""The robots that the simulator has a stand-in for."""
MOST_BITS: Final = 64
"""Of an integer that a variable is set to."""
_SHORT: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
_CLASS: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_ENV_ID: Final = re.compile(r"([\w.-]+/)?[\w.-]*[A-Za-z][\w.-]*-v\d+")


def invalid(origin: str, mistakes: list[str], text: str | None = None) -> ScenarioInvalid:
    """The error that tells all mistakes of a file, with their lines in its ``text`` where that is TOML."""
    count = pluralize(len(mistakes), "mistake")
    return ScenarioInvalid(
        f"{origin} has {count}",
        # A text that is no file cannot be checked.
        hint=f"`ospbridge check {shlex.quote(origin)}` tells whether all are mended"
        if origin.endswith(".toml")
        else "",
        mistakes=mistakes,
        rows=mistakes if text is None else Lines(text).placed(mistakes),
    )


def read(text: str, origin: str = "scenario") -> Scenario:
    """The scenario in ``text``. Raises ScenarioInvalid."""
    try:
        data = parsed(text)
    except NoToml as error:
        raise invalid(origin, [str(error)]) from None
    mistakes = Mistakes()
    scenario = _scenario(Table(data, "", _keys(Scenario), mistakes), origin)
    note_misused(scenario, named_vectors(scenario), mistakes)
    if mistakes.found:
        raise invalid(origin, mistakes.found, text)
    return scenario


def _keys(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind) if field.name != "origin"]


def _scenario(table: Table, origin: str) -> Scenario:
    if "name" not in table:
        table.mistakes.note("name", "a scenario needs a name", 'for instance name = "cartpole"')
    values = _values(table)
    time_step = table.seconds("time_step", None)
    if time_step is None and TIME_STEP_SIZE in values:
        time_step = _seconds(values[TIME_STEP_SIZE], values.get(ITERATIONS, "1"))
        if time_step is None:
            table.mistakes.note(
                f"values.'{TIME_STEP_SIZE}'", f"{values[TIME_STEP_SIZE]!r} is no positive number of seconds"
            )
    agents = table.data.get("agent", [])
    if not isinstance(agents, list) or not agents:
        table.mistakes.note("agent", "a scenario needs an agent", "begin its table with [[agent]]")
        agents = []
    found = [
        _agent(Table(data, f"agent[{at}]", _keys(AgentScenario), table.mistakes), timed=time_step is not None)
        for at, data in enumerate(agents)
    ]
    ids = [agent.env_id for agent in found if agent.env_id]
    for env_id in sorted({env_id for env_id in ids if ids.count(env_id) > 1}):
        table.mistakes.note("agent", f"env_id {env_id!r} is given to more than one agent")
    return Scenario(
        name=table.text("name"),
        description=table.text("description"),
        action_repeat=table.whole("action_repeat", 1, 1, 10_000),
        time_step=time_step,
        values=values,
        randomise=_ranges(table, "randomise"),
        world=_world(table),
        agent=tuple(found),
        origin=origin,
    )


def _seconds(size: str, iterations: str) -> float | None:
    """That a step of the simulator takes: so many iterations of that size."""
    try:
        seconds = float(size)
    except ValueError:
        return None
    with suppress(ValueError):
        # What is no number is told when it is held against the simulator.
        seconds *= max(float(iterations), 1.0)
    return seconds if 0.0 < seconds < math.inf else None


def _values(table: Table) -> dict[str, str]:
    """Variables to set, in the simulator's text form."""
    values: dict[str, str] = {}
    inner = Table(table.data.get("values", {}), "values", None, table.mistakes)
    for name in inner:
        value = inner.data[name]
        if isinstance(value, bool):
            values[name] = "T" if value else "F"
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            inner.wrong(name, f"an integer of {MOST_BITS} bits at most", value)
        elif isinstance(value, int | str):
            values[name] = str(value)
        elif isinstance(value, float):
            values[name] = f"{value:.15g}"
        elif isinstance(value, list) and value and all(map(is_number, value)):
            values[name] = f"({','.join(f'{number:.15g}' for number in map(float, value))})"
        else:
            inner.wrong(name, "a text, a number, true or false, or a list of numbers", value)
    return values


def _ranges(table: Table, key: str, *, largest: float = math.inf) -> dict[str, Range]:
    """``name = { low = .., high = .. }``, none of them beyond ``largest``."""
    ranges: dict[str, Range] = {}
    inner = Table(table.data.get(key, {}), table.at(key), None, table.mistakes)
    for name in inner:
        before = len(table.mistakes.found)
        bounds = Table(inner.data[name], inner.at(name), ("low", "high"), table.mistakes)
        low, high = bounds.per_value("low"), bounds.per_value("high")
        for end, value in (("low", low), ("high", high)):
            check_size(table.mistakes, bounds.at(end), numbers_of(value), largest)
        if isinstance(low, float) and isinstance(high, float) and -math.inf < low < high < math.inf:
            ranges[name] = Range(low, high)
        elif len(table.mistakes.found) == before:
            table.mistakes.note(
                inner.at(name), "expected two finite numbers, low below high", "{ low = 0.5, high = 2.0 }"
            )
    return ranges


def _world(table: Table) -> WorldTable | None:
    if "world" not in table:
        return None
    data = table.data["world"]
    plain = Table(data, "world", None, table.mistakes)
    if "kind" not in plain:
        if isinstance(data, dict):
            table.mistakes.note("world.kind", "a world needs a kind", " or ".join(map(repr, WORLDS)))
        return None
    kind = plain.word("kind", tuple(WORLDS))
    if kind is None:
        return None
    inner = Table(data, "world", _keys(WORLDS[kind]), table.mistakes)
    if kind == "gym":
        if "env" not in inner:
            table.mistakes.note("world.env", "a gym world needs an environment", 'env = "CartPole-v1"')
        time_step = inner.seconds("time_step", 0.01) or 0.01
        return GymTable(env=inner.text("env"), copies=inner.whole("copies", 1, 1, 1000), time_step=time_step)
    if kind == "arena":
        return ArenaTable(
            robots=inner.whole("robots", 2, 1, 64),
            obstacles=inner.whole("obstacles", 4, 0, 64),
            time_step=inner.seconds("time_step", 0.05) or 0.05,
        )
    if kind == "robot":
        if "robot" not in inner:
            table.mistakes.note("world.robot", "a robot world needs a robot", " or ".join(map(repr, ROBOTS)))
            return None
        return RobotTable(robot=inner.word("robot", ROBOTS) or "")
    return SyntheticTable(
        agents=inner.texts("agents", ("agent",)),
        inputs=inner.texts("inputs"),
        outputs=inner.texts("outputs"),
        infos=inner.texts("infos"),
        time_step=inner.seconds("time_step", 0.01) or 0.01,
    )


def _agent(table: Table, *, timed: bool) -> AgentScenario:
    mistakes = table.mistakes
    match = Table(table.data.get("match", {}), table.at("match"), _keys(Match), mistakes)
    names = _names(table)
    return AgentScenario(
        match=Match(name=match.text("name", "*"), type=match.text("type", "*")),
        env_id=_fitting(table, "env_id", _ENV_ID, "an id such as 'ospbridge/CartPole-v0'"),
        nondeterministic=table.flag("nondeterministic"),
        task=_fitting(table, "task", _CLASS, "'package.module:Class'"),
        names=names,
        action=_action(Table(table.data.get("action", {}), table.at("action"), _keys(Action), mistakes)),
        observe=_observe(Table(table.data.get("observe", {}), table.at("observe"), _keys(Observe), mistakes)),
        episode=_episode(
            Table(table.data.get("episode", {}), table.at("episode"), _keys(Episode), mistakes),
            names,
            timed=timed,
        ),
    )


def _fitting(table: Table, key: str, pattern: re.Pattern[str], form: str) -> str:
    text = table.text(key)
    if text and not pattern.fullmatch(text):
        table.wrong(key, form, text)
    return text


def _names(table: Table) -> dict[str, Source]:
    names: dict[str, Source] = {}
    inner = Table(table.data.get("names", {}), table.at("names"), None, table.mistakes)
    kinds = [kind.value for kind in SourceKind]
    for short in inner:
        if not _SHORT.fullmatch(short) or short.startswith("prev_"):
            table.mistakes.note(
                inner.at(short), "no short name", "letters, digits and single _, beginning with a letter"
            )
        elif short in RESERVED:
            table.mistakes.note(inner.at(short), "is a word of expressions already", "choose another one")
        value = inner.text(short)
        kind, colon, name = value.partition(":")
        if not colon or kind not in kinds or not name:
            inner.wrong(
                short,
                "'output:NAME', 'info:NAME', 'input:NAME' or 'value:NAME'",
                value,
                "" if kind in kinds else nearest(kind, kinds),
            )
            continue
        names[short] = source(SourceKind(kind), name)
    # What is wrong with one name's source is no reason to call that name unknown in expressions.
    return {short: names.get(short, Source(SourceKind.OUTPUT, short)) for short in inner}


def _action(table: Table) -> Action:
    kind = table.choice("kind", ActionKind.DISCRETE if "choices" in table else ActionKind.CONTINUOUS)
    choices: tuple[tuple[float, ...], ...] = ()
    if kind is ActionKind.DISCRETE:
        for key in ("normalised", "low", "high"):
            if key in table:
                table.mistakes.note(table.at(key), "belongs to continuous actions", 'kind = "continuous"')
        choices = _choices(table)
    elif "choices" in table:
        table.mistakes.note(table.at("choices"), "belongs to discrete actions", 'kind = "discrete"')
    return Action(
        kind=kind,
        inputs=table.texts("inputs", ("*",)),
        choices=choices,
        normalised=table.flag("normalised"),
        low=as_inputs(table, "low"),
        high=as_inputs(table, "high"),
        rate=positive(table, "rate"),
        out_of_bounds=table.choice("out_of_bounds", OutOfBounds.CLIP),
    )


def _choices(table: Table) -> tuple[tuple[float, ...], ...]:
    rows = table.data.get("choices")
    if (
        not isinstance(rows, list)
        or not rows
        or not all(isinstance(row, list) and row for row in rows)
        or not all(is_number(number) and math.isfinite(number) for row in rows for number in row)
    ):
        table.wrong(
            "choices", "a list with a list of inputs for each choice, such as [[-1.0], [1.0]]", rows or []
        )
        return ()
    for at, row in enumerate(rows):
        if len(row) != len(rows[0]):
            table.mistakes.note(
                f"{table.at('choices')}[{at}]",
                f"has {len(row)} inputs where the first choice has {len(rows[0])}",
            )
    choices = tuple(tuple(map(float, row)) for row in rows)
    for at, choice in enumerate(choices):
        check_size(table.mistakes, f"{table.at('choices')}[{at}]", choice, LARGEST_FLOAT32)
    return choices


def _observe(table: Table) -> Observe:
    return Observe(
        outputs=table.texts("outputs", ("*",)),
        infos=table.texts("infos"),
        values=table.texts("values"),
        ranges=table.choice("ranges", Ranges.AUTO),
        range=_ranges(table, "range", largest=LARGEST_FLOAT32),
        out_of_range=table.choice("out_of_range", OutOfRange.PASS),
        not_finite=table.choice("not_finite", NotFinite.END),
        scale=table.flag("scale"),
        history=table.whole("history", 1, 1, 1000),
    )


def _episode(table: Table, names: dict[str, Source], *, timed: bool) -> Episode:
    expressions = {
        key: _expression(table, key, names, timed=timed) for key in ("reward", "terminated", "truncated")
    }
    zeros = table.choice("reset_observation", ResetObservation.STEP)
    settle = table.whole("settle_steps", 1, 0, 1_000_000) if "settle_steps" in table else None
    if settle and zeros is ResetObservation.ZEROS:
        table.mistakes.note(
            table.at("settle_steps"), "there is no settling with reset_observation = 'zeros'", "leave it out"
        )
    if settle == 0 and zeros is ResetObservation.STEP:
        table.mistakes.note(
            table.at("settle_steps"),
            "an observation needs a step",
            'at least 1, or reset_observation = "zeros"',
        )
    return Episode(
        **expressions,
        terminated_on=table.texts("terminated_on"),
        max_steps=table.whole("max_steps", 1, 1) if "max_steps" in table else None,
        neutral=_neutral(table),
        settle_steps=settle,
        reset_observation=zeros,
    )


def _neutral(table: Table) -> PerValue | None:
    value = as_inputs(table, "neutral")
    if any(math.isinf(number) for number in numbers_of(value)):
        table.mistakes.note(table.at("neutral"), "must be finite, since the agent is given it")
    return value


def _expression(table: Table, key: str, names: dict[str, Source], *, timed: bool) -> str | None:
    if key not in table:
        return None
    value = table.data[key]
    if key == "reward" and is_number(value) and math.isfinite(value):
        value = repr(float(value))
    if not isinstance(value, str) or not value.strip():
        table.wrong(key, "an expression as a text", value)
        return None
    try:
        Judge({key: value}, names)
    except WrongExpression as error:
        for each in error.all:
            table.mistakes.note(table.at(key), each.what, each.hint)
        return None
    if not timed and "time" in _words(value, names):
        table.mistakes.note(
            table.at(key),
            "time needs time_step",
            "say at the top how many seconds a step takes: time_step = 0.01",
        )
    return value


def _words(value: str, names: dict[str, Source]) -> set[str]:
    tree, _, _ = parse(value, names)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
