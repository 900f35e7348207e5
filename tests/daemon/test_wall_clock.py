"""The wall clock may jump at any time: it says when something was, and never how long to wait."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import ospbridge

STAMPS: Final = {
    "dashboard/app.py": "when the daemon began",
    "record/collecting.py": "when an episode began and ended",
    "session/lease.py": "how long ago a session that died wrote its lease",
    "sink/store.py": "when an episode came",
}
"""Who may ask for it, and what it is written down for."""
CLOCKS: Final = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
ROOT: Final = Path(ospbridge.__file__).parent


def asks(tree: ast.Module) -> bool:
    """Whether a module asks what time of day it is."""
    for node in ast.walk(tree):
        names: list[tuple[str | None, str]] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [(node.value.id, node.attr)]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module, alias.name) for alias in node.names]
        if not CLOCKS.isdisjoint(names):
            return True
    return False


def test_nothing_waits_by_the_wall_clock() -> None:
    found = {
        str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if asks(ast.parse(path.read_text("utf-8")))
    }
    assert found == set(STAMPS)
