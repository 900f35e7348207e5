"""The page of the Python library: signatures and docstrings of what ``public`` lists.

They are read from the source, because some modules can be imported only where an extra is installed.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import ospbridge
from docs.generation.markdown import escaped, table
from docs.generation.public import SECTIONS, Listed
from ospbridge import errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["documented", "page"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
WIDTH: Final = 100
"""Of a signature on one line."""
OWN: Final = ("tally",)
"""Arguments that only the package itself gives."""
TOP: Final = """\
# The Python library

<!-- `python -m docs.generate` writes this page from the docstrings; docs/generation/public.py has the list. -->

This page lists what programs may import from ospbridge, by purpose. If a release changes something that is listed here,
its changelog says so. What is not listed may change in any release. For programs that run, see
[Speak OSP from a program of your own](../how-to/program.md).

- The package is typed (`py.typed`): `mypy --strict` checks programs that use it.
- `float32[n]` is a numpy array with its shape. Times are seconds.
- Errors are named as in `ospbridge.errors`; each says what was expected and what came, and has a `hint`.
"""


@dataclass(frozen=True, slots=True)
class Attribute:
    """Of a class: its type and default as they are written, empty where nothing is."""

    name: str
    type: str
    default: str
    meaning: str


def page(there: str) -> str:  # noqa: ARG001  # nothing of it is kept
    """The whole page."""
    parts = [TOP]
    for section in SECTIONS:
        parts.append(f"## {section.title}\n\n{section.text}\n")
        parts += [part for listed in section.listed for part in _entry(listed)]
    return "\n".join(parts)


def documented() -> Iterator[tuple[str, str]]:
    """Each listed name, members too, with what the page says of it."""
    for section in SECTIONS:
        for listed in section.listed:
            node = _named(listed.module, listed.name)
            text = "" if node is None else ast.get_docstring(node) or ""
            yield listed.path, f"{text} {listed.more}".strip()
            if isinstance(node, ast.ClassDef):
                for name in listed.members:
                    member = _member(listed.module, node, name)
                    told = member.meaning if isinstance(member, Attribute) else ast.get_docstring(member)
                    yield f"{listed.path}.{name}", told or ""


def _entry(listed: Listed) -> Iterator[str]:
    yield f"### {listed.name}\n"
    yield f"`{listed.path}`\n"
    node = _named(listed.module, listed.name)
    if isinstance(node, ast.ClassDef):
        yield from _class(node, listed)
    elif node is not None:
        yield _code(_signature(node, node.name))
        yield from _prose(ast.get_docstring(node) or "")
    if listed.more:
        yield f"{listed.more}\n"


def _class(node: ast.ClassDef, listed: Listed) -> Iterator[str]:
    fields = _fields(listed.module, node)
    if listed.called and _is_data(node):
        parameters = [_as_parameter(field) for field in fields]
        yield _code(_call(listed.name, ["*", *parameters] if _keyword_only(node) else parameters, ""))
    elif listed.called:
        made = _member(listed.module, node, "__init__")
        assert isinstance(made, Function)
        yield _code(_signature(made, listed.name, result=""))
    yield from _prose(ast.get_docstring(node) or "")
    members = [_member(listed.module, node, name) for name in listed.members] if listed.members else fields
    for member in members:
        if isinstance(member, Function) and not _is_property(member):
            yield _code(_signature(member, member.name, owner=listed.name))
            yield from _prose(ast.get_docstring(member) or "")
    attributes = [_as_attribute(member) for member in members if _is_plain(member)]
    told_above = listed.called and _is_data(node) and not any(each.meaning for each in attributes)
    if attributes and not told_above:
        rows = [
            (f"`{each.name}`", f"`{each.type}`" if each.type else "", _marked(each.meaning))
            for each in attributes
        ]
        header = ("attribute", "type", "meaning")
        shown = [at for at in range(3) if at == 0 or any(row[at] for row in rows)]
        yield table([header[at] for at in shown], [[row[at] for at in shown] for row in rows]) + "\n"


# --- what stands in the source --------------------------------------------------------------------------------------


@cache
def _module(name: str) -> ast.Module:
    path = Path(ospbridge.__path__[0]).parent.joinpath(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def _named(module: str, name: str) -> ast.ClassDef | Function | None:
    """None: a constant. Raises LookupError for what is not there at all."""
    body = _module(module).body
    for node in body:
        if isinstance(node, ast.ClassDef | Function) and node.name == name:
            return node
    if any(attribute.name == name for attribute in _attributes(body, "")):
        return None
    raise LookupError(f"{module} has no {name}")


def _lineage(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """The class and those of the package that it derives from, with their modules."""
    yield module, node
    imports = {
        alias.asname or alias.name: (each.module or "", alias.name)
        for each in _module(module).body
        if isinstance(each, ast.ImportFrom)
        for alias in each.names
    }
    here = {each.name for each in _module(module).body if isinstance(each, ast.ClassDef)}
    for base in node.bases:
        name = ast.unparse(base.value if isinstance(base, ast.Subscript) else base)
        place, original = (module, name) if name in here else imports.get(name, ("", name))
        if place.startswith("ospbridge."):
            found = _named(place, original)
            assert isinstance(found, ast.ClassDef)
            yield from _lineage(place, found)


def _member(module: str, node: ast.ClassDef, name: str) -> Function | Attribute:
    """The first that says what it is: what a class has in another way, its base may have words for."""
    found: Function | Attribute | None = None
    for _, each in _lineage(module, node):
        for function in _functions(each) + _run_by(each):
            if function.name == name:
                if ast.get_docstring(function) or name == "__init__":
                    return function
                found = found or function
        inner = [
            line for function in _functions(each) if function.name == "__init__" for line in function.body
        ]
        for attribute in _attributes(each.body, "") + _attributes(inner, "self."):
            if attribute.name == name:
                if attribute.meaning:
                    return attribute
                found = found or attribute
    if found is None:
        raise LookupError(f"{node.name} of {module} has no {name}")
    return found


def _functions(node: ast.ClassDef) -> list[Function]:
    return [each for each in node.body if isinstance(each, Function)]


def _run_by(node: ast.ClassDef) -> list[Function]:
    """Methods that run an exchange of the core of sessions, as that has them, with what the exchange returns."""
    core = _named("ospbridge.session.core", "SessionCore")
    assert isinstance(core, ast.ClassDef)
    exchanges = {function.name: function for function in _functions(core)}
    found = []
    for each in node.body:
        if isinstance(each, ast.Assign) and ast.unparse(each.value).startswith("runs(SessionCore."):
            method = deepcopy(exchanges[ast.unparse(each.value).removeprefix("runs(SessionCore.")[:-1]])
            method.name = ast.unparse(each.targets[0])
            assert isinstance(method.returns, ast.Subscript)
            method.returns = method.returns.slice
            found.append(method)
    return found


def _attributes(body: Sequence[ast.stmt], prefix: str) -> list[Attribute]:
    """Those that are assigned to in a body, each with the text behind it."""
    found = []
    for at, statement in enumerate(body):
        target: ast.expr
        if isinstance(statement, ast.AnnAssign):
            target, kind = statement.target, ast.unparse(statement.annotation)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, kind = statement.targets[0], ""
        else:
            continue
        name = ast.unparse(target)
        if not name.startswith(prefix) or "." in name.removeprefix(prefix):
            continue
        behind = body[at + 1] if at + 1 < len(body) else None
        text = ""
        if isinstance(behind, ast.Expr) and isinstance(behind.value, ast.Constant):
            text = inspect.cleandoc(str(behind.value.value))
        default = "" if statement.value is None else _value(statement.value)
        found.append(Attribute(name.removeprefix(prefix), kind, default, text))
    return found


def _fields(module: str, node: ast.ClassDef) -> list[Attribute]:
    """The public ones of a class of data, or the values of an enumeration; of its bases first."""
    found: list[Attribute] = []
    for _, each in reversed(list(_lineage(module, node))):
        found += [field for field in _attributes(each.body, "") if not field.name.startswith("_")]
    return found


def _is_data(node: ast.ClassDef) -> bool:
    """Made of its fields."""
    made = any(function.name == "__init__" for function in _functions(node))
    return not made and any("dataclass" in ast.unparse(each) for each in node.decorator_list)


def _keyword_only(node: ast.ClassDef) -> bool:
    return any("kw_only=True" in ast.unparse(each) for each in node.decorator_list)


def _is_property(node: Function) -> bool:
    return any(ast.unparse(each) == "property" for each in node.decorator_list)


def _is_plain(member: Function | Attribute) -> bool:
    return isinstance(member, Attribute) or _is_property(member)


def _as_attribute(member: Function | Attribute) -> Attribute:
    if isinstance(member, Attribute):
        return member
    kind = ast.unparse(member.returns) if member.returns else ""
    return Attribute(member.name, kind, "", ast.get_docstring(member) or "")


# --- how it is written ----------------------------------------------------------------------------------------------


def _signature(node: Function, name: str, *, owner: str = "", result: str | None = None) -> str:
    """As a program calls it: without ``self``, and with the class itself for ``Self``."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(positional) - len(given.defaults)) + [*given.defaults]
    parameters = [_parameter(each, default) for each, default in zip(positional, defaults, strict=True)]
    if parameters and positional[0].arg in ("self", "cls"):
        del parameters[0]
    if given.vararg:
        parameters.append(f"*{_parameter(given.vararg, None)}")
    elif given.kwonlyargs:
        parameters.append("*")
    parameters += [
        _parameter(each, default)
        for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if each.arg not in OWN
    ]
    if given.kwarg:
        # A typed dictionary says nothing to a reader: the docstring has the page that lists its keys.
        parameters.append(f"**{given.kwarg.arg}")
    if result is None:
        result = ast.unparse(node.returns) if node.returns else ""
    made = any(ast.unparse(each) == "classmethod" for each in node.decorator_list)
    start = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    return start + _call(f"{owner}.{name}" if made else name, parameters, re.sub(r"\bSelf\b", owner, result))


def _parameter(given: ast.arg, default: ast.expr | None) -> str:
    annotation = f": {ast.unparse(given.annotation)}" if given.annotation else ""
    return f"{given.arg}{annotation}" + ("" if default is None else f" = {_value(default)}")


def _value(node: ast.expr) -> str:
    """As it is written in the source."""
    return (
        json.dumps(node.value)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        else ast.unparse(node)
    )


def _as_parameter(field: Attribute) -> str:
    return f"{field.name}: {field.type}" + (f" = {field.default}" if field.default else "")


def _call(name: str, parameters: Sequence[str], result: str) -> str:
    end = f" -> {result}" if result else ""
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {each}," for each in parameters), f"){end}"])


def _code(text: str) -> str:
    return f"```python\n{text}\n```\n"


def _prose(docstring: str) -> Iterator[str]:
    for paragraph in docstring.split("\n\n"):
        if paragraph.strip():
            yield f"{_marked(paragraph)}\n"


def _marked(docstring: str) -> str:
    """A paragraph of a docstring; errors are code too."""
    parts = re.split(r"(`[^`]*`)", " ".join(docstring.replace("``", "`").split()))
    named = "|".join(sorted(errors.__all__, key=len, reverse=True))
    return escaped("".join(p if p.startswith("`") else re.sub(rf"\b({named})\b", r"`\1`", p) for p in parts))
