"""Write the pages and tables that follow from the code: `python -m docs.generate` from the project's root.

With ``--check`` it writes nothing, and names the pages that are not as they would be written.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from docs.generation import commands, decisions, events, exits, library
from ospbridge.__main__ import COLUMNS, HELP
from ospbridge.cli import main as program

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH: Final = COLUMNS - 2
"""What click leaves of a terminal."""
DOCS: Final = Path(__file__).parent

PAGES: Final[dict[str, Callable[[str], str]]] = {
    "reference/cli.md": commands.page,
    "reference/exit-codes.md": exits.page,
    "reference/log-events.md": events.page,
    "reference/python.md": library.page,
    "explanation/exactly-once.md": decisions.page,
}
"""What makes a page of the one that there is; some keep what people wrote in it."""


def help_page() -> str:
    """What the program shows without asking click."""
    context = program.make_context("ospbridge", [], resilient_parsing=True, terminal_width=WIDTH)
    return f"{program.get_help(context)}\n"


def stale() -> dict[Path, str]:
    """The pages that are not as the code has it, and what they should be."""
    found = {}
    for name, make in PAGES.items():
        path = DOCS / name
        there = path.read_text("utf-8") if path.exists() else ""
        wanted = make(there)
        if wanted != there:
            found[path] = wanted
    path = Path(HELP)
    if not path.exists() or path.read_text("ascii") != help_page():
        found[path] = help_page()
    return found


def main(arguments: list[str]) -> int:
    """The exit code."""
    found = stale()
    for path, wanted in found.items():
        if "--check" not in arguments:
            path.write_text(wanted, "utf-8")
        sys.stdout.write(f"{path}\n")
    return int(bool(found) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
