"""The commands that read traces, `ospbridge trace ...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ospbridge.osp.codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ospbridge.observe.trace import TraceRecord

__all__ = ["show", "trace"]


def _codes(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[Code, ...]:
    """Codes by their names in the protocol, in any case, or by their numbers."""
    codes = []
    for name in names:
        try:
            codes.append(Code(int(name)) if name.isdecimal() else Code[name.upper().removeprefix("UDP_")])
        except (KeyError, ValueError):
            import difflib

            close = difflib.get_close_matches(name.upper(), Code.__members__, n=3)
            way_out = f"Did you mean {' or '.join(close)}?" if close else "Names look like GET_VALUE."
            raise click.BadParameter(f"{name!r} is no code of OSP 1.1. {way_out}", ctx, param) from None
    return tuple(codes)


@click.group()
def trace() -> None:
    """Read traces written with --trace."""


@trace.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--json", "as_json", is_flag=True, help="Print each record as a line of JSON, its meaning in `note`."
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "--code",
    "codes",
    callback=_codes,
    metavar="NAME",
    multiple=True,
    help="Show only datagrams with this code, such as SET_VALUE or 52; may be given several times.",
)
def show(file: Path, as_json: bool, limit: int | None, codes: tuple[Code, ...]) -> None:
    """Show the datagrams of a trace with their meaning.

    Times are in seconds since the trace began, and in milliseconds since the line above.
    """
    from dataclasses import replace
    from itertools import islice

    from ospbridge.observe.trace import Describer, Direction, read_trace

    describe = Describer()
    wanted = {bytes((code,)) for code in codes}

    def described() -> Iterator[tuple[TraceRecord, str]]:
        # All datagrams are described, also those not shown: what an INIT_ACK tells is needed for those behind it.
        for record in read_trace(file):
            if record.direction is Direction.NOTE:
                meaning = record.note
            else:
                meaning = describe(record.data, record.direction, record.port)
            if not codes or record.data[:1] in wanted:
                yield record, meaning

    before: TraceRecord | None = None
    for record, meaning in islice(described(), limit):
        if as_json:
            click.echo(replace(record, note=meaning).encode(), nl=False)
            continue
        if before is None:
            click.echo(click.style(_HEADER, bold=True), color=_colour())
        click.echo(_row(record, before, meaning), color=_colour())
        before = record


_HEADER = f"{'time/s':>11} {'delta/ms':>10} {'dir':4} {'port':>5} datagram"
_COLOURS = {"c>s": "cyan", "s>c": "green", "note": "yellow"}


def _row(record: TraceRecord, before: TraceRecord | None, meaning: str) -> str:
    delta = f"{(record.time - before.time) * 1000:+.3f}" if before else ""
    port = str(record.port) if record.port else ""
    client = f"[{_printable(record.client)}] " if record.client else ""
    bad = record.direction.value != "note" and meaning.startswith(("malformed", "garbage"))
    row = f"{record.time:11.6f} {delta:>10} "
    row += click.style(f"{record.direction.value:4}", fg=_COLOURS[record.direction.value])
    row += f" {port:>5} {client}"
    row += click.style(_printable(meaning), fg="red" if bad else None, dim=record.direction.value == "note")
    if record.note not in (meaning, ""):
        row += click.style(f"  # {_printable(record.note)}", dim=True)
    return row


def _printable(text: str) -> str:
    """``text`` on one line: what could steer the terminal is shown as an escape. A trace may come from anybody."""
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


def _colour() -> bool | None:
    """None lets click decide: colours on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None
