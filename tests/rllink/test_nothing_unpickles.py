"""No module of the package can unpickle anything: none imports what could."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ospbridge

FORBIDDEN = {
    "_pickle",
    "cloudpickle",
    "dill",
    "joblib",
    "jsonpickle",
    "marshal",
    "msgpack_numpy",
    "pickle",
    "shelve",
}
PACKAGE = Path(ospbridge.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a source names in an import statement, or in a call that imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("import_module", "__import__", "find_spec") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def offences(source: str) -> list[str]:
    if not any(word in source for word in (*FORBIDDEN, "allow_pickle")):
        return []
    tree = ast.parse(source)
    names = [name for name in imported(tree) if FORBIDDEN & set(name.split("."))]
    # numpy unpickles arrays of objects if it is told so.
    told = [
        f"allow_pickle in line {each.value.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for each in node.keywords
        if each.arg == "allow_pickle"
        and not (isinstance(each.value, ast.Constant) and each.value.value is False)
    ]
    return names + told


def test_no_module_can_unpickle() -> None:
    names = {path.relative_to(PACKAGE).as_posix() for path in MODULES}
    assert {"rllink/decoding.py", "rllink/pickled.py", "osp/client.py", "daemon/conductor.py"} <= names
    found = {path: offences(path.read_text()) for path in MODULES}
    assert {path: offence for path, offence in found.items() if offence} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from multiprocessing import pickle",
        "import importlib\nimportlib.import_module('cloudpickle')",
        "import numpy\nnumpy.load(f, allow_pickle=True)",
    ],
)
def test_an_offence_would_be_seen(source: str) -> None:
    assert offences(source)
