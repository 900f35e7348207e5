"""What commands print: tables for people, JSON for programs, notes on standard error.

A table is drawn by rich on a terminal and is plain aligned text elsewhere. JSON has no infinity and no NaN: where a
number is not finite, `null` is written.
"""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ospbridge.text import LINE, NAME, printable, writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ospbridge.interface import InterfaceValue

__all__ = [
    "Column",
    "bar_of",
    "note",
    "number",
    "print_json",
    "print_json_line",
    "print_table",
    "ranges",
    "say",
    "short_float",
]


PADDING: Final = 3
"""Blanks between two columns of a table on a terminal."""
EDGES: Final = 2
"""Blanks at both ends of its lines."""
NARROWEST: Final = 12
"""Characters to which a column of texts may be folded."""


class Column(NamedTuple):
    """A column of a table; numbers stand on the right. ``most``: bytes of a cell, LINE where one holds sentences."""

    title: str
    right: bool = False
    most: int = NAME

    def cells(self, texts: Iterable[str]) -> list[str]:
        """As they are shown."""
        return [printable(text, self.most) for text in texts]


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table on standard output."""
    if sys.stdout.isatty():
        _draw(columns, rows, title)
    else:
        if title:
            say(title)
        for line in plain_lines(columns, rows):
            click.echo(line)


def plain_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    """The head and the rows, aligned, two blanks between columns."""
    shown = [[column.title, *column.cells(row[at] for row in rows)] for at, column in enumerate(columns)]
    widths = [max(map(len, cells)) for cells in shown]
    lines = []
    for row in zip(*shown, strict=True):
        padded = [
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(printable(title, LINE)) if title else None, box=box.SIMPLE_HEAD, title_justify="left"
    )
    for column in columns:
        table.add_column(
            column.title, justify="right" if column.right else "left", no_wrap=column.right, overflow="fold"
        )
    shown = [column.cells(row[at] for row in rows) for at, column in enumerate(columns)]
    for row in zip(*shown, strict=True):
        # Text, because a name may hold brackets, which rich would read as markup.
        table.add_row(*map(Text, row))
    # rich would leave out whole columns of a table that has no room; lines that the terminal wraps lose nothing.
    needed = EDGES + sum(_least(*each) + PADDING for each in zip(columns, shown, strict=True))
    console = Console()
    if console.width < needed:
        console = Console(width=needed)
    console.print(table)


def _least(column: Column, cells: Sequence[str]) -> int:
    """Characters that a column cannot do without: all of a number's, and some of a text's, which is folded."""
    longest = max(map(len, (column.title, *cells)))
    return longest if column.right else min(longest, max(len(column.title), NARROWEST))


def say(text: str) -> None:
    """A line on standard output."""
    click.echo(printable(text, LINE))


def note(text: str) -> None:
    """Something worth knowing, on standard error."""
    click.echo(printable(text, LINE), err=True)


def print_json(value: Any) -> None:
    """One JSON document; indented on a terminal."""
    click.echo(_json(value, indented=sys.stdout.isatty()))


def print_json_line(value: Any) -> None:
    """One line of JSON, written at once."""
    click.echo(_json(value))


def _json(value: Any, *, indented: bool = False) -> bytes:
    import orjson

    option = orjson.OPT_INDENT_2 if indented else 0
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        # The name of a file need not be UTF-8, and no JSON can hold such a one.
        return orjson.dumps(_with_escapes(value), option=option)


def _with_escapes(value: Any) -> Any:
    if isinstance(value, str):
        return writable(value)
    if isinstance(value, dict):
        return {_with_escapes(key): _with_escapes(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_escapes(each) for each in value]
    return value


def number(value: float) -> float | None:
    """``value`` for JSON: None, written `null`, where it is infinite or NaN."""
    return value if math.isfinite(value) else None


def ranges(values: Sequence[InterfaceValue]) -> list[dict[str, Any]]:
    """Interface values for JSON; an end of a range that is open is `null`."""
    return [{"name": value.name, "min": number(value.min), "max": number(value.max)} for value in values]


def short_float(value: float) -> str:
    """A float32 with the fewest digits that tell it from its neighbours."""
    import numpy as np

    return str(np.float32(value)).removesuffix(".0")


@contextmanager
def bar_of(label: str) -> Iterator[Callable[[int, int], None]]:
    """What is called with how much is done, and of how much; the bar appears with the first call."""
    with ExitStack() as stack:
        bar: Any = None

        def progress(done: int, of: int) -> None:
            nonlocal bar
            if bar is None:
                bar = stack.enter_context(
                    click.progressbar(length=of, label=label, file=sys.stderr, hidden=not sys.stderr.isatty())
                )
            bar.update(done - bar.pos)

        yield progress
