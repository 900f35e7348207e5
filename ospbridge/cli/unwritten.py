"""Standard output that cannot be written: a full disk behind it, or a device that fails.

A closed pipe is none of it: click ends a command in silence then, as programs do.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from traceback import walk_tb
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EXIT_UNWRITTEN", "unwritten_told"]

EXIT_UNWRITTEN: Final = 74
"""EX_IOERR of sysexits.h."""


@contextmanager
def unwritten_told() -> Iterator[None]:
    """Around a whole command: where its output could not be written, that is what it ends with.

    Whatever it raised is then taken for what came of that. Streams that are closed take all, and say nothing.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # to the end of the process
    try:
        yield
    except SystemExit as ending:
        failure = _still_fails()
        if failure is None or ending.code not in (0, None):
            raise
        _end(failure)
    except BaseException as error:
        failure = _failed_in(error) or _still_fails()
        if failure is None:
            raise
        _end(failure)


def _failed_in(error: BaseException) -> OSError | None:
    """What printing raised. Where standard output has no buffer, nothing else tells of it."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_failed_in, error.exceptions)), None)
    if isinstance(error, OSError) and error.errno != errno.EPIPE:
        for frame, _ in walk_tb(error.__traceback__):
            if frame.f_code is click.echo.__code__ and frame.f_locals.get("file") is sys.stdout:
                return error
    return None


def _still_fails() -> OSError | None:
    """Why what was printed and is still in a buffer cannot be written; None where it can."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return error if error.errno != errno.EPIPE else None
    except ValueError:
        # Closed by the command itself.
        return None
    return None


def _end(failure: OSError) -> None:
    click.echo(f"Error: the output cannot be written to standard output: {failure.strerror}", err=True)
    click.echo("Hint: look at what standard output was sent to: whether its disk is full", err=True)
    # The interpreter would try to write the rest once more.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    sys.exit(EXIT_UNWRITTEN)
