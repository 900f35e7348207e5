"""The commands that read traces, `ospbridge trace ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from ospbridge.cli.options import CloseNames, NumberRange, json_option
from ospbridge.cli.output import note
from ospbridge.cli.trace_choosing import Choice, choosing
from ospbridge.cli.trace_filter import filter_
from ospbridge.cli.trace_replay import replay
from ospbridge.text import LIST, pluralize, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.observe.trace import TraceRecord

__all__ = ["show", "trace"]


@click.group(cls=CloseNames)
def trace() -> None:
    """Read traces written with --trace."""


@trace.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option("Print each record as a line of JSON, its meaning in `note`.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@choosing
@click.option(
    "--slow",
    type=NumberRange(min=0.0, min_open=True),
    default=40.0,
    show_default=True,
    metavar="MS",
    help="Milliseconds from which an answer counts as slow, and its delta is red.",
)
@click.option("--summary", is_flag=True, help="Print how long requests took instead of the datagrams.")
def show(  # noqa: PLR0917  # click passes options by name
    file: Path, as_json: bool, limit: int | None, choice: Choice, slow: float, summary: bool
) -> None:
    """Show the datagrams of a trace with their meaning.

    Times are in seconds since the trace began, and in milliseconds since the line above.
    """
    from itertools import islice

    if summary:
        if limit is not None:
            from ospbridge.errors import UsageError

            raise UsageError(
                "--summary is of all that is chosen, and --limit would count lines",
                hint="choose a part of the trace with --from and --to",
            )
        from ospbridge.cli.trace_summary import print_summary

        print_summary(file, choice, slow=slow, as_json=as_json)
        return
    before: TraceRecord | None = None
    read, shown = [0], False
    for line in islice(_lines(file, choice, read), limit):
        shown = True
        if as_json:
            from dataclasses import replace

            click.echo(replace(line.record, note=line.meaning).encode(), nl=False)
            continue
        if before is None:
            click.echo(click.style(_HEADER, bold=True), color=_colour())
        click.echo(_row(line, before, slow), color=_colour())
        before = line.record
    if read[0] and not shown:
        note(f"none of {pluralize(read[0], 'record')} is chosen")


trace.add_command(filter_)
trace.add_command(replay)


class _Line(NamedTuple):
    """A record that is shown."""

    record: TraceRecord
    meaning: str
    waited: float
    """Milliseconds since the record before it in the trace, shown or not."""


def _lines(file: Path, choice: Choice, read: list[int]) -> Iterator[_Line]:
    """What is chosen; ``read`` counts all. All datagrams are described: what an INIT_ACK tells is needed later."""
    from ospbridge.observe.trace import Describer, Direction, read_trace

    describe = Describer()
    before: TraceRecord | None = None
    for record in read_trace(file):
        read[0] += 1
        if record.direction is Direction.NOTE:
            meaning = record.note
        else:
            meaning = describe(record.data, record.direction, record.port)
        if choice(record):
            yield _Line(record, meaning, (record.time - before.time) * 1000 if before else 0.0)
        if record.direction is not Direction.NOTE:
            before = record


_HEADER = f"{'time/s':>11} {'delta/ms':>10} {'dir':4} {'port':>5} datagram"
_COLOURS = {"c>s": "cyan", "s>c": "green", "note": "yellow"}


def _row(line: _Line, before: TraceRecord | None, slow: float) -> str:
    record, meaning, waited = line
    delta = f"{(record.time - before.time) * 1000:+.3f}" if before else ""
    port = str(record.port) if record.port else ""
    client = f"[{printable(record.client)}] " if record.client else ""
    bad = record.direction.value != "note" and meaning.startswith(("malformed", "garbage"))
    late = record.direction.value == "s>c" and waited >= slow
    row = f"{record.time:11.6f} "
    row += click.style(f"{delta:>10}", fg="red", bold=True) if late else f"{delta:>10}"
    row += " " + click.style(f"{record.direction.value:4}", fg=_COLOURS[record.direction.value])
    row += f" {port:>5} {client}"
    row += click.style(
        printable(meaning, LIST), fg="red" if bad else None, dim=record.direction.value == "note"
    )
    if record.note not in (meaning, ""):
        row += click.style(f"  # {printable(record.note, LIST)}", dim=True)
    return row


def _colour() -> bool | None:
    """None lets click decide: colours on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None
