"""The page of log events: their levels and fields are those of the code, their meanings are kept from the page.

What is found is each call of a method of a logger, named ``log`` or made by ``logs.get``. Its event is a text, or an
argument that the function's own callers give as a text; its fields are its keywords, those of dicts that are written
in the same function, and those of dicts that a function or property of the package returns.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ospbridge
from docs.generation.markdown import table

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Event", "events", "meanings", "page"]

LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
SECTIONS: Final = {
    "ospbridge/daemon/relay/": "RLlink servers",
    "ospbridge/daemon/hub": "Environments",
    "ospbridge/daemon/attach": "Environments",
    "ospbridge/daemon/episodes": "Environments",
    "ospbridge/daemon/barrier": "Environments",
    "ospbridge/daemon/conductor": "Environments",
    "ospbridge/daemon/recording": "Recordings",
    "ospbridge/observe/trace": "Recordings",
    "ospbridge/daemon/supervisor": "The simulator",
    "ospbridge/daemon/launching": "The simulator",
    "ospbridge/daemon/": "The daemon",
    "ospbridge/cli/reloading": "The daemon",
    "ospbridge/dashboard/": "The daemon",
    "ospbridge/cli/sink": "ospbridge sink",
    "ospbridge/sink/": "ospbridge sink",
    "ospbridge/cli/sim": "ospbridge sim",
    "ospbridge/": "Elsewhere",
}
"""Where a module's events are told: the first that fits."""
ANY: Final = "..."
"""A field whose name is known only when it is logged."""
HEADER: Final = ("event", "level", "fields", "what it means, and what to do")


Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(slots=True)
class Event:
    """``always`` and ``sometimes``: its fields."""

    section: str
    name: str
    level: str
    always: list[str]
    sometimes: list[str] = field(default_factory=list)

    def add(self, other: Event) -> None:
        """The same event from another place: what one of them lacks is not always there."""
        both = [*self.always, *self.sometimes, *other.always, *other.sometimes]
        self.always = [name for name in self.always if name in other.always]
        self.sometimes = [name for name in dict.fromkeys(both) if name not in self.always]

    @property
    def fields(self) -> str:
        """As the page has them."""
        return ", ".join(
            [*(f"`{name}`" for name in self.always), *(f"(`{name}`)" for name in self.sometimes)]
        )


@cache
def _trees() -> dict[str, ast.Module]:
    root = Path(ospbridge.__path__[0])
    return {
        path.relative_to(root.parent).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(root.rglob("*.py"))
    }


@cache
def _functions() -> dict[str, list[tuple[ast.Module, Function]]]:
    """All of the package, by their names."""
    found: dict[str, list[tuple[ast.Module, Function]]] = {}
    for tree in _trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append((tree, node))
    return found


@cache
def events() -> dict[tuple[str, str, str], Event]:
    """Every event, by section, name and level."""
    found: dict[tuple[str, str, str], Event] = {}
    for path, tree in _trees().items():
        section = next(told for prefix, told in SECTIONS.items() if path.startswith(prefix))
        for call, around in _calls(tree, None):
            assert isinstance(call.func, ast.Attribute)
            level = "error" if call.func.attr == "exception" else call.func.attr
            always, sometimes = _fields(call, around, tree)
            if call.func.attr == "exception":
                always.append("exception")
            for name in _names(call.args[0], around, tree):
                event = Event(section, name, level, list(always), list(sometimes))
                key = (section, name, level)
                if key in found:
                    found[key].add(event)
                else:
                    found[key] = event
    return found


def _calls(node: ast.AST, around: Function | None) -> Iterator[tuple[ast.Call, Function | None]]:
    """The calls of loggers, with the function that each stands in."""
    for child in ast.iter_child_nodes(node):
        inside = child if isinstance(child, Function) else around
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr in LEVELS
        ):
            who = ast.unparse(child.func.value)
            if who in ("log", "self._log", "_log", "logger") or who.startswith("logs.get("):
                yield child, inside
        yield from _calls(child, inside)


def _names(said: ast.expr, around: Function | None, tree: ast.Module) -> list[str]:
    if isinstance(said, ast.Constant) and isinstance(said.value, str):
        return [said.value]
    if isinstance(said, ast.IfExp):
        return [*_names(said.body, around, tree), *_names(said.orelse, around, tree)]
    if isinstance(said, ast.Name) and around is not None:
        parameters = [each.arg for each in around.args.args]
        at = parameters.index(said.id) - (parameters[0] == "self")
        return [
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == around.name
            for name in _names(node.args[at], None, tree)
        ]
    raise ValueError(f"cannot tell which event {ast.unparse(said)!r} is, in line {said.lineno}")


def _fields(call: ast.Call, around: Function | None, tree: ast.Module) -> tuple[list[str], list[str]]:
    always: list[str] = []
    sometimes: list[str] = []
    for keyword in call.keywords:
        if keyword.arg is not None:
            always.append("exception" if keyword.arg == "exc_info" else keyword.arg)
            continue
        dicts = _dicts(keyword.value, around, tree)
        if not dicts:
            raise ValueError(f"cannot tell the fields {ast.unparse(keyword.value)!r}, in line {call.lineno}")
        for name in dict.fromkeys(name for names in dicts for name in names):
            (always if all(name in names for names in dicts) else sometimes).append(name)
    return always, sometimes


def _dicts(value: ast.expr, around: ast.AST | None, tree: ast.Module) -> list[list[str]]:
    """The keys of each dict that ``value`` may be."""
    if isinstance(value, ast.Dict):
        return [[str(key.value) for key in value.keys if isinstance(key, ast.Constant)]]
    if isinstance(value, ast.DictComp):
        return [[], [ANY]]
    if isinstance(value, ast.IfExp):
        return [*_dicts(value.body, around, tree), *_dicts(value.orelse, around, tree)]
    if isinstance(value, ast.Name) and around is not None:
        return _assigned(value.id, around, tree)
    # A function of the same module, or a property of another.
    name = ast.unparse(value.func if isinstance(value, ast.Call) else value).rpartition(".")[2]
    return [
        keys
        for place, node in _functions().get(name, [])
        if place is tree or not isinstance(value, ast.Call)
        for step in ast.walk(node)
        if isinstance(step, ast.Return) and step.value is not None
        for keys in _dicts(step.value, node, place)
    ]


def _assigned(name: str, around: ast.AST, tree: ast.Module) -> list[list[str]]:
    """The dicts that a variable is given, and what is put into it afterwards."""
    found: list[list[str]] = []
    for node in ast.walk(around):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id == name:
                found += _dicts(node.value, None, tree)
            elif isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
                found += [[], [str(ast.literal_eval(target.slice))]]
    return found


# --- the page -------------------------------------------------------------------------------------------------------


def meanings(there: str) -> dict[tuple[str, str, str], str]:
    """What the page says of each event, by section, name and level."""
    found = {}
    section = ""
    for line in there.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").strip("`")
        elif row := re.match(r"\| `([^`]+)` \| (\w+) \| (.*?) \| (.*) \|$", line):
            name, level, _, meaning = row.groups()
            found[section, name, level] = meaning
    return found


def page(there: str) -> str:
    """The page with a row for each event there is, and the meanings that it had."""
    told = meanings(there)
    parts = [there.partition("\n## ")[0].rstrip() + "\n"]
    by_section: dict[str, list[tuple[str, ...]]] = {}
    for key, event in events().items():
        row = (f"`{event.name}`", event.level, event.fields, told.get(key, ""))
        by_section.setdefault(event.section, []).append(row)
    for section in dict.fromkeys(
        ["The daemon", "The simulator", "Environments", "RLlink servers", *SECTIONS.values()]
    ):
        if section in by_section:
            heading = f"`{section}`" if section.startswith("ospbridge ") else section
            parts.append(f"## {heading}\n\n{table(HEADER, sorted(by_section[section]))}\n")
    return "\n".join(parts)
