"""The program ``ospbridge``, and ``python -m ospbridge``: a page that is known beforehand, or ``ospbridge.cli``.

The list of commands is asked for most often, by people who wait for it. What click makes of it on 80 columns lies
beside this module, so that showing it takes little longer than starting Python; ``python -m docs.generate`` renews it,
and a test compares the two.
"""

from __future__ import annotations

import os
import sys

__all__ = ["HELP", "run"]

HELP = os.path.join(os.path.dirname(__file__), "help.txt")  # noqa: PTH118, PTH120  # pathlib would take longer
COLUMNS = 80


def run() -> None:
    """What the installed program calls."""
    name = _name()
    if sys.argv[1:] in (["--help"], ["-h"]) and name and _columns() >= COLUMNS:
        with open(HELP, encoding="ascii") as file:  # noqa: PTH123
            page = file.read()
        try:
            print(page.replace("ospbridge", name, 1), end="", flush=True)  # noqa: T201  # also where it is closed
        except OSError:
            pass  # told as by any other command
        else:
            return
    try:
        from ospbridge.cli import main

        main()
    except KeyboardInterrupt:
        # As the commands end with it, whose code is being read yet, or has just been left.
        sys.stderr.write("\n")
        sys.exit(130)


def _name() -> str:
    """What click would call the program; empty where it would find another name."""
    called = os.path.basename(sys.argv[0])  # noqa: PTH119
    return {"ospbridge": "ospbridge", "__main__.py": "python -m ospbridge"}.get(called, "")


def _columns() -> int:
    """As shutil.get_terminal_size has it."""
    try:
        said = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        said = 0
    if said > 0:
        return said
    try:
        return os.get_terminal_size(1).columns or COLUMNS
    except OSError:
        return COLUMNS


if __name__ == "__main__":
    run()
