"""Becomes a simulator: sets what it runs under, waits for the word, and executes its program.

``simulator.py`` starts it by its path, as a program of the standard library alone. The first argument is JSON:
``{"batch": bool, "core": int or null, "go": descriptor, "report": descriptor}``, the others are the program and its
arguments. It goes on when a byte comes from ``go``, which is sent when the guardian knows its process: an end of file
there means that its owner is gone. What could not be done is written to ``report``, as lines ``WHAT: WHY``; that ends
when the program runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys


def main() -> None:
    """Run the program, or exit with 127."""
    options = json.loads(sys.argv[1])
    command = sys.argv[2:]
    report = options["report"]
    os.set_inheritable(report, False)
    if options["batch"]:
        try:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        except (AttributeError, OSError) as error:
            _tell(report, "batch", error)
    if options["core"] is not None:
        try:
            os.sched_setaffinity(0, {options["core"]})
        except (AttributeError, OSError) as error:
            _tell(report, "pin", error)
    if not os.read(options["go"], 1):
        return
    os.close(options["go"])
    try:
        os.execvp(command[0], command)  # noqa: S606  # the program that the user named
    except OSError as error:
        _tell(report, "program", error)
        sys.exit(127)


def _tell(report: int, what: str, error: Exception) -> None:
    why = error.strerror if isinstance(error, OSError) else "this system has no such thing"
    with contextlib.suppress(OSError):
        os.write(report, f"{what}: {why}\n".encode())


if __name__ == "__main__":
    main()
