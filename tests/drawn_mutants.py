"""Draws changes of the code at random, makes each of them in a clone, and prints which test notices it.

    python -m tests.drawn_mutants --clone DIR --seed 1 --count 50 --packages osp,session,envs,daemon,daemon/relay,task

DIR is a clone that nothing else uses, with an editable install in DIR/.venv. As many changes are drawn from each
package, and of each kind, by the seed and the code alone, so that `--only 11..20` goes on where a run ended. All tests
come only where those of the package's folder pass; a run that takes too long has noticed. Texts, logs and errors stay.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

OPERATORS = ["Eq", "NotEq", "Lt", "LtE", "Gt", "GtE", "Is", "IsNot", "In", "NotIn", "And", "Or", "Add", "Sub"]
SWAPPED = {name: getattr(ast, OPERATORS[at ^ 1]) for at, name in enumerate(OPERATORS)}
LEFT_OUT = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
SAYS = re.compile(
    r"\b_?(debug|info|warn|warning|error|exception|remark|told?|anomaly|problem|note|notice|echo|print)$"
)
SAID = {"hint", "told", "what", "why", "reason", "message", "help", "text", "__all__", "__slots__"}


class Change(NamedTuple):
    """``after`` instead of what stands in a file between two places."""

    path: Path
    kind: str
    line: int
    start: int
    end: int
    after: str

    def __str__(self) -> str:
        before = self.path.read_bytes()[self.start : self.end].decode()
        return f"{self.kind}: {' '.join(before.split())} -> {self.after}"


class Places:
    """All changes that can be made in one file, as ``found``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found: list[Change] = []
        self._starts = [0]
        for line in path.read_bytes().splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._look(ast.parse(path.read_bytes()))

    def _look(self, node: ast.AST) -> None:
        if isinstance(node, LEFT_OUT) or self._is_said(node):
            return
        self._change(node)
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._look(child)

    def _is_said(self, node: ast.AST) -> bool:
        match node:
            case ast.If(test=test):
                return ast.unparse(test).endswith("TYPE_CHECKING")
            case ast.Call(func=called):
                return bool(SAYS.search(ast.unparse(called)))
            case ast.keyword(arg=name):
                return name in SAID
            case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
                return ast.unparse(target).rpartition(".")[2] in SAID
            case ast.Expr(value=value):
                return isinstance(value, ast.Constant) or self._is_said(value)
        return False

    def _change(self, node: ast.AST) -> None:
        new: Any = deepcopy(node)
        match node:
            case ast.Compare(ops=operators):
                for at, operator in enumerate(operators):
                    new = deepcopy(node)
                    new.ops[at] = SWAPPED[type(operator).__name__]()
                    self._add(node, "comparison", new)
            case ast.BoolOp() | ast.BinOp(op=ast.Add() | ast.Sub()) | ast.AugAssign(op=ast.Add() | ast.Sub()):
                new.op = SWAPPED[type(node.op).__name__]()
                self._add(node, "operator", new)
            case ast.Constant(value=int() | float() as number) if (
                not isinstance(number, bool) and number != number + 1
            ):
                new.value = number + 1
                self._add(node, "constant", new)
            case ast.UnaryOp(op=ast.Not()):
                self._add(node, "not dropped", node.operand)
            case ast.Return(value=ast.Constant(value=True | False | None as value)):
                self._add(node, "return value", ast.Return(ast.Constant(not value)))
            case ast.Break() | ast.Continue():
                self._add(node, "loop", ast.Continue() if isinstance(node, ast.Break) else ast.Break())
        match node:
            case ast.Expr(value=ast.Call() | ast.Await()) | ast.Assign(targets=[ast.Attribute()]):
                self._add(node, "statement deleted", ast.Pass())
            case ast.AugAssign(target=ast.Attribute()):
                self._add(node, "statement deleted", ast.Pass())
            case ast.If(test=test) | ast.IfExp(test=test) if not isinstance(test, ast.UnaryOp):
                self._add(test, "not added", ast.UnaryOp(ast.Not(), test))

    def _add(self, old: ast.expr | ast.stmt, kind: str, new: ast.expr | ast.stmt) -> None:
        start = self._starts[old.lineno - 1] + old.col_offset
        end = self._starts[(old.end_lineno or 0) - 1] + (old.end_col_offset or 0)
        text = ast.unparse(new)
        after = f"({text})" if isinstance(new, ast.expr) else text
        self.found.append(Change(self.path, kind, old.lineno, start, end, after))


def drawn(root: Path, packages: list[str], seed: int, count: int) -> list[tuple[str, Change]]:
    """``count`` changes with their packages, from each in turn."""
    turns: list[list[tuple[str, Change]]] = []
    for package in packages:
        draw = random.Random(f"{seed} {package}")
        kinds: dict[str, list[Change]] = {}
        for path in sorted((root / "ospbridge" / package).glob("*.py")):
            for change in Places(path).found:
                kinds.setdefault(change.kind, []).append(change)
        turns.append([])
        while kinds and len(turns[-1]) * len(packages) < count:
            kind = draw.choice(sorted(kinds))
            turns[-1].append((package, kinds[kind].pop(draw.randrange(len(kinds[kind])))))
            kinds = {kind: left for kind, left in kinds.items() if left}
    return [turn[at] for at in range(count) for turn in turns if at < len(turn)][:count]


def noticed(root: Path, tests: list[str], seconds: float) -> str:
    """The test that failed, or that it took too long; empty where all passed."""
    command = [str(root / ".venv/bin/pytest"), "-x", "-q", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(command, cwd=root, process_group=0, stdout=subprocess.PIPE, text=True) as run:
        try:
            output = run.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            output = f"FAILED TIME-OUT-after-{seconds:.0f}-s"
        with contextlib.suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # also what a test that failed has left behind
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    told = failed[1] if failed else f"pytest ended with {run.returncode}"
    return told if run.returncode else ""


def main() -> int:
    """As the options say."""
    parser = argparse.ArgumentParser(epilog=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clone", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--packages", default="osp,session,envs,daemon,daemon/hub,daemon/relay,task")
    parser.add_argument(
        "--only", default="1..", metavar="K..L", help="of the draws, from 1; L may be left out"
    )
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(300.0, 900.0), help="for a folder, for all"
    )
    parser.add_argument("--at-least", type=int, default=0, help="fail where fewer are noticed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # no file stays changed
    root: Path = options.clone.resolve()
    draws = drawn(root, options.packages.split(","), options.seed, options.count)
    first, _, last = options.only.partition("..")
    results: Counter[str] = Counter()
    for number, (folder, change) in enumerate(draws[: int(last or len(draws))], 1):
        if number < int(first or 1):
            continue
        where = f"seed {options.seed} {change.path.relative_to(root)}:{change.line}"
        print(f"{number}/{len(draws)} {where} {change}", flush=True)
        begun, source, was = monotonic(), change.path.read_bytes(), change.path.stat()
        try:
            change.path.write_bytes(source[: change.start] + change.after.encode() + source[change.end :])
            # By the time of its file Python tells its compiled forms apart.
            os.utime(change.path, (was.st_atime, was.st_mtime + number))
            by_folder = noticed(root, [f"tests/{folder}"], options.seconds[0])
            found = by_folder or noticed(root, [], options.seconds[1]) or "SURVIVED"
        finally:
            change.path.write_bytes(source)
            os.utime(change.path, (was.st_atime, was.st_mtime))
        results["folder" if by_folder else "SURVIVED" if found == "SURVIVED" else "all tests"] += 1
        print(f"    {found} ({monotonic() - begun:.0f} s)", flush=True)
    print(", ".join(f"{kind}: {count}" for kind, count in sorted(results.items())))
    return int(results.total() - results["SURVIVED"] < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
