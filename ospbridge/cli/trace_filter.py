"""``ospbridge trace filter``: a part of a trace, as a trace."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ospbridge.cli.output import bar_of, note
from ospbridge.cli.stopping import stoppable
from ospbridge.cli.trace_choosing import Choice, choosing
from ospbridge.text import pluralize

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["filter_"]


@click.command("filter")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--output",
    "-o",
    "target",
    required=True,
    metavar="OUT",
    type=click.Path(dir_okay=False, path_type=Path, allow_dash=True),
    help="Write the trace to this file; - is standard output.",
)
@choosing
@click.option("--invert", is_flag=True, help="Write what the other options do not choose.")
@click.option("--force", is_flag=True, help="Replace OUT where it exists.")
def filter_(file: Path, target: Path, choice: Choice, invert: bool, force: bool) -> None:
    """Write a part of a trace to another file.

    Records stay as they are, with their times. To be replayed, a trace needs each client's INIT_COMMUNICATION_ACK.
    """
    from ospbridge.observe.trace import read_trace

    counts = [0, 0]

    def lines() -> Iterator[bytes]:
        with bar_of("reading") as progress:
            for record in read_trace(file, progress):
                counts[1] += 1
                if choice(record) != invert:
                    counts[0] += 1
                    yield record.encode()

    if str(target) == "-":
        for line in lines():
            click.echo(line, nl=False)
    else:
        # Whoever is told to end leaves no part of a file either.
        with stoppable():
            _write(file, target, lines(), force=force)
    if sys.stderr.isatty() or str(target) != "-":
        note(f"{counts[0]} of {pluralize(counts[1], 'record')}")


def _write(file: Path, target: Path, lines: Iterator[bytes], *, force: bool) -> None:
    """The whole file or none. Raises UsageError for a file that must not be replaced."""
    from ospbridge.errors import ConfigurationError, UsageError
    from ospbridge.replacing import replaced

    try:
        if target.exists() and target.samefile(file):
            raise UsageError(f"{target} is the trace that is read", hint="write to another file")
        if target.exists() and not target.is_file():
            # A device would be replaced by a file.
            raise UsageError(
                f"{target} is not a regular file", hint="write to a file, or to standard output with -"
            )
        if target.exists() and not force:
            raise UsageError(
                f"{target} exists already", hint="write to another file, or replace it with --force"
            )
        with replaced(target) as part:
            part.writelines(lines)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write a trace to {target}: {error.strerror}",
            hint="name a file in a directory that exists and may be written to",
        ) from None
