"""Numbers in the simulator's variables, which come as text: doubles, booleans, components of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.errors import TaskError
from ospbridge.osp.wire import number
from ospbridge.task.scenario import Source, SourceKind

if TYPE_CHECKING:
    from ospbridge.interface import StepOutcome

__all__ = ["component_hint", "components_in", "number_in", "number_of", "source"]


def source(kind: SourceKind, name: str) -> Source:
    """A source; of a variable that is a vector, ``#1`` behind its name is the second number."""
    plain, mark, digits = name.rpartition("#")
    if kind is SourceKind.VALUE and mark and digits.isdecimal():
        return Source(kind, plain, int(digits))
    return Source(kind, name)


def number_in(text: str, component: int | None) -> float:
    """The number that ``text`` is, or its component: ``T`` is 1.0, ``(0.4,0.03,0)`` a vector. Raises ValueError."""
    if component is not None:
        parts = text.strip().strip("()").split(",")
        if component >= len(parts):
            raise ValueError(f"{text!r} has {len(parts)} components")
        text = parts[component]
    if text in ("T", "F"):
        return float(text == "T")
    return number(text)


def components_in(text: str) -> int:
    """How many components ``text`` has, which may be a vector: 3 in ``(0.4,0.03,0)``; 0 where it is none."""
    if not (text.startswith("(") and text.endswith(")")):
        return 0
    parts = text[1:-1].split(",")
    try:
        for part in parts:
            number(part)
    except ValueError:
        return 0
    return len(parts)


def component_hint(variable: Source, text: str) -> str:
    """What to name instead of ``variable`` where ``text`` is no number of it; nothing where there is none."""
    last = text.count(",")
    if variable.component is None:
        return f"name a component, for instance value:{variable.name}#0" if text.startswith("(") else ""
    if variable.component <= last:
        return ""
    return (
        f"its components are #0 to #{last}" if last else f"leave #{variable.component} out: it is no vector"
    )


def number_of(variable: Source, outcome: StepOutcome, agent: str) -> float:
    """The variable's number in what a step brought. Raises TaskError where it is gone, or no number."""
    text = outcome.values.get(variable.name)
    if text is None:
        raise TaskError(
            f"the simulator sent no {variable.name!r}, which the scenario of agent {agent!r} uses",
            hint="`ospbridge values list` shows whether it is still there",
        )
    try:
        return number_in(text, variable.component)
    except ValueError:
        hint = component_hint(variable, text)
        raise TaskError(f"{variable} is {text!r}, which is no number", hint=hint) from None
