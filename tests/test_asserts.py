"""Asserts of the package only say what always holds, so that it does the same under `python -O`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parents[1] / "ospbridge"
HARMLESS: Final = {"all", "any", "isinstance", "len", "type"}


def test_no_assert_of_the_package_has_a_side_effect() -> None:
    telling = [
        f"{path.relative_to(PACKAGE.parent)}:{node.lineno}: {ast.unparse(node)}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Assert)
        and any(
            isinstance(part, ast.Await | ast.NamedExpr | ast.Yield)
            or (isinstance(part, ast.Call) and ast.unparse(part.func) not in HARMLESS)
            for part in ast.walk(node.test)
        )
    ]
    assert telling == []
