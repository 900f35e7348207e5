"""The pages, and what stands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
PAGES: Final = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def page(name: str) -> str:
    """``how-to/plot``, as it is written."""
    return (DOCS / f"{name}.md").read_text("utf-8")


def words_of(name: str) -> str:
    """A page without its line breaks, so that sentences can be found in it."""
    return " ".join(page(name).split())


def section(text: str, title: str) -> str:
    found = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def programs(text: str) -> dict[str, str]:
    """Those that are named, as in ``<!-- program: drive.py -->``."""
    return dict(re.findall(r"<!-- program: (.+?) -->\n```python\n(.*?)```", text, re.DOTALL))


def commands(text: str) -> list[list[str]]:
    """The words of each ``ospbridge`` in the blocks for a shell."""
    written = "\n".join(blocks(text, "sh")).replace("\\\n", "")
    found = re.findall(r"^(?:sudo )?(?:\S*/bin/)?ospbridge\b(?!-)(.*)$", written, re.MULTILINE)
    return [shlex.split(words.partition(" > ")[0]) for words in found]


def run(program: str, name: str = "page", **replaced: str) -> dict[str, Any]:
    """What a program of a page has made in the end. ``replaced``: addresses by their ports, as in ``_45454``."""
    for port, address in replaced.items():
        program = program.replace(f"127.0.0.1:{port.strip('_')}", address)
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, name, "exec"), found)
    return found
