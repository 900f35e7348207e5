"""Reward and termination as expressions: arithmetic over a closed list of names and functions, compiled once.

RestrictedPython compiles them to native code. It and the closed list are there for good errors, not as a wall: a
scenario may name a class of Python anyway. All numbers are floats, so that no power of integers runs for ever.
"""

from __future__ import annotations

import ast
import math
from keyword import kwlist
from typing import TYPE_CHECKING, Any, Final

from RestrictedPython.compile import compile_restricted_exec
from RestrictedPython.transformer import RestrictingNodeTransformer

from ospbridge.toml.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["CONSTANTS", "FUNCTIONS", "RESERVED", "Judge", "WrongExpression", "parse"]


def _sign(value: float) -> float:
    return math.copysign(1.0, value) if value else 0.0


def _floor(value: float) -> float:
    return float(math.floor(value))


def _ceil(value: float) -> float:
    return float(math.ceil(value))


def _clip(value: float, low: float, high: float) -> float:
    return low if value < low else min(value, high)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "min": min,
    "max": max,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "asin": math.asin,
    "acos": math.acos,
    "atan": math.atan,
    "atan2": math.atan2,
    "tanh": math.tanh,
    "hypot": math.hypot,
    "floor": _floor,
    "ceil": _ceil,
    "sign": _sign,
    "clip": _clip,
    "isfinite": math.isfinite,
}
"""What an expression may call; ``clip(x, low, high)``, ``sign(x)`` in -1.0, 0.0 and 1.0, the others as in Python."""

_COUNTS: Final = {
    **dict.fromkeys(FUNCTIONS, (1, 1)),
    "min": (2, 64),
    "max": (2, 64),
    "hypot": (1, 64),
    "log": (1, 2),
    "atan2": (2, 2),
    "clip": (3, 3),
}
"""Least and most arguments."""

CONSTANTS: Final[dict[str, float]] = {"pi": math.pi, "tau": math.tau, "inf": math.inf}
COUNTERS: Final = ("time", "step")
RESERVED: Final = frozenset({*FUNCTIONS, *CONSTANTS, *COUNTERS, *kwlist, "prev", "print", "printed"})
"""What a short name may not be called: words of expressions, of Python, and of RestrictedPython."""
PREVIOUS: Final = "prev__"
DEEPEST: Final = 100

_OPERATORS: Final = (
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow),
    *(ast.USub, ast.UAdd, ast.Not, ast.And, ast.Or),
    *(ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq),
)
FORMS: Final = (
    "numbers, short names, + - * / // % **, comparisons, and, or, not, if-else and the listed functions"
)
_FORMS: Final = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp)
_REFUSED: Final = {
    ast.Subscript: "an index [...]",
    ast.Lambda: "a lambda",
    ast.NamedExpr: "an assignment",
    ast.JoinedStr: "a text",
    ast.BitAnd: "'&'; write 'and'",
    ast.BitOr: "'|'; write 'or'",
    ast.BitXor: "'^'; write '**' for a power",
}


class WrongExpression(ValueError):
    """An expression that cannot be used; ``hint`` says what to write instead. ``all``: it, and what else is wrong."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.all: tuple[WrongExpression, ...] = (self,)


class _Checked(ast.NodeTransformer):
    """An expression with ``prev.x`` as a name of its own. What is not allowed in it is noted in ``wrong``."""

    def __init__(self, names: Iterable[str]) -> None:
        self.wrong: dict[str, WrongExpression] = {}
        """By what is said, once."""
        self.names = frozenset(names)
        self.used: set[str] = set()
        self.previous: set[str] = set()
        self._depth = 0

    def _note(self, what: str, hint: str = "") -> None:
        self.wrong.setdefault(what, WrongExpression(what, hint))

    def visit(self, node: ast.AST) -> Any:
        self._depth += 1
        if self._depth > DEEPEST:
            raise WrongExpression("it is nested too deeply", "use a class: task = 'package.module:Class'")
        try:
            return super().visit(node)
        finally:
            self._depth -= 1

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if not isinstance(node, _FORMS + _OPERATORS):
            what = next((said for kind, said in _REFUSED.items() if isinstance(node, kind)), "")
            self._note(f"an expression may not hold {what or 'a ' + type(node).__name__}", FORMS)
            return node
        return super().generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return node
        if isinstance(node.value, int | float):
            try:
                return ast.copy_location(ast.Constant(float(node.value)), node)
            except OverflowError:
                self._note("a number is too large")
                return node
        self._note(f"{node.value!r} is no number")
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        name = node.id
        if name in self.names:
            self.used.add(name)
        elif name in FUNCTIONS:
            self._note(f"{name} is a function", f"write {name}(...)")
        elif name == "prev":
            self._note("prev needs a name", "write prev.NAME")
        elif name not in CONSTANTS and name not in COUNTERS:
            known = (*self.names, *CONSTANTS, *COUNTERS, *FUNCTIONS)
            self._note(f"unknown name {name!r}", nearest(name, known) or self._choice())
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not (isinstance(node.value, ast.Name) and node.value.id == "prev"):
            before = node.value.id if isinstance(node.value, ast.Name) else ""
            self._note(
                f"an expression may not hold '{before}.{node.attr}'; only prev.NAME has a dot",
                nearest(before, ("prev",)) or FORMS,
            )
            return node
        if node.attr not in self.names:
            self._note(
                f"unknown name {node.attr!r} behind prev", nearest(node.attr, self.names) or self._choice()
            )
        self.previous.add(node.attr)
        return ast.copy_location(ast.Name(PREVIOUS + node.attr, ast.Load()), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if not isinstance(node.func, ast.Name):
            self._note("only the listed functions can be called", ", ".join(FUNCTIONS))
            return node
        name = node.func.id
        if name not in FUNCTIONS:
            self._note(f"unknown function {name!r}", nearest(name, FUNCTIONS) or ", ".join(FUNCTIONS))
        elif node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            self._note(f"{name} takes plain arguments only")
        else:
            least, most = _COUNTS[name]
            if not least <= len(node.args) <= most:
                wanted = str(least) if least == most else f"{least} to {most}"
                self._note(f"{name} takes {wanted} arguments, got {len(node.args)}")
        node.args = [self.visit(argument) for argument in node.args if not isinstance(argument, ast.Starred)]
        return node

    def _choice(self) -> str:
        return f"[agent.names] has {', '.join(sorted(self.names)) or 'none'}"


def parse(source: str, names: Iterable[str]) -> tuple[ast.expr, frozenset[str], frozenset[str]]:
    """The checked expression, the short names it uses, and those it uses behind prev. Raises WrongExpression."""
    if "#" in source:
        raise WrongExpression(
            "an expression may not hold '#'",
            "a comment stands outside of the text; a component of a vector is named in [agent.names]",
        )
    try:
        # Texts of several lines are one expression: there are no texts within it that blanks could matter to.
        tree = ast.parse(" ".join(source.split()), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        said = error.msg if isinstance(error, SyntaxError) else str(error)
        place = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise WrongExpression(f"{source!r} is no expression: {said}{place}") from None
    checked = _Checked(names)
    body = checked.visit(tree.body)
    if checked.wrong:
        first, *others = checked.wrong.values()
        first.all = (first, *others)
        raise first
    return body, frozenset(checked.used), frozenset(checked.previous)


class _Straight(RestrictingNodeTransformer):
    """Lets the index stand by which a name finds its number: no expression of a scenario can hold one."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:  # noqa: N802  # a visitor's name
        return node


class Judge:
    """Several expressions as one function. ``sources`` by what they decide, in the order of the results.

    ``function`` takes the numbers of ``names``, then (where ``looks_back``) the previous ones, then time and step; it
    returns a tuple of results. Raises WrongExpression.
    """

    def __init__(self, sources: Mapping[str, str], names: Iterable[str]) -> None:
        known = tuple(names)
        self.sources = dict(sources)
        trees: list[ast.expr] = []
        used: set[str] = set()
        previous: set[str] = set()
        for source in self.sources.values():
            tree, now, before = parse(source, known)
            trees.append(tree)
            used |= now | before
            previous |= before
        self.names = tuple(name for name in known if name in used)
        self.looks_back = bool(previous)
        self._parameters = (
            *self.names,
            *(PREVIOUS + name for name in self.names if self.looks_back),
            *COUNTERS,
        )
        self._result = ast.Tuple(trees, ast.Load())
        self.function = self._compiled(self._result)

    def straight(self, places: Sequence[int]) -> Callable[..., Any]:
        """As ``function``, of a list where the number of each name is at its place, time and step."""
        # The list has a reserved name, which none of the others can be.
        lines = "".join(
            f"    {name} = prev[{place}]\n" for name, place in zip(self.names, places, strict=True)
        )
        return self._compiled(self._result, f"def judge(prev, time, step):\n{lines}    return 0")

    def _compiled(self, result: ast.expr, written: str = "") -> Callable[..., Any]:
        shell = ast.parse(written or f"def judge({', '.join(self._parameters)}):\n    return 0")
        definition = shell.body[0]
        assert isinstance(definition, ast.FunctionDef)
        definition.body[-1] = ast.Return(result)
        policy = _Straight if written else RestrictingNodeTransformer
        compiled = compile_restricted_exec(ast.fix_missing_locations(shell), "<scenario>", policy=policy)
        if compiled.errors or compiled.code is None:
            raise WrongExpression("; ".join(compiled.errors))
        space: dict[str, Any] = {"__builtins__": {}, **FUNCTIONS, **CONSTANTS}
        exec(compiled.code, space)  # noqa: S102  # restricted, and over the closed list above
        function: Callable[..., Any] = space["judge"]
        return function

    def explain(self, arguments: tuple[float, ...]) -> str:
        """Which expression fails for these arguments, how, and with which values."""
        for decides, source in self.sources.items():
            tree, now, before = parse(source, self.names)
            try:
                float(self._compiled(tree)(*arguments))
            except (ArithmeticError, ValueError, TypeError) as error:
                given = dict(zip(self._parameters, arguments, strict=True))
                shown = {
                    **{name: given[name] for name in sorted(now)},
                    **{f"prev.{name}": given[PREVIOUS + name] for name in sorted(before)},
                }
                values = ", ".join(f"{name} = {value:g}" for name, value in shown.items())
                return f"{decides} = {source!r} failed: {error}" + (f", with {values}" if values else "")
        return "an expression failed"
