"""What all subcommands of ``ospbridge bench`` do with their reports: a table, JSON or a picture, and a bar until then.

A subcommand wears ``@report_options``, measures within ``measuring`` of its ``Output`` and has it ``tell`` the report.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.options import json_option, with_options
from ospbridge.cli.output import Column, note, print_json, print_table
from ospbridge.cli.stopping import stoppable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ospbridge.bench.report import Report, Row
    from ospbridge.cli.options import Decorator

__all__ = ["JSON", "Output", "report_options"]

BESIDE: Final = 3
"""Blanks and lines beside a column of a table that is drawn."""
JSON: Final = (
    'Print {"measured", "title", "cores", "subjects"} beside what was asked for, the subjects as a list of {"name", '
    '"ratios"} with their figures by name and unit; ratios by the name of what was compared with.'
)


@dataclass(frozen=True, slots=True)
class Output:
    """Where reports go: to standard output, and into the picture if there is one."""

    as_json: bool
    picture: Path | None = None

    @contextlib.contextmanager
    def measuring(self, turns: int | None = None) -> Iterator[Callable[[str], None]]:
        """Around a measurement: what is called with a subject's name before each of its turns.

        Finds out first that the picture can be drawn. ``turns``: how many there will be, for the bar.
        """
        from ospbridge.observe import logs

        if self.picture is not None:
            _check_picture(self.picture)
        # A daemon's conductor may be among what is measured, and says what it does.
        logs.configure(level="warning")
        with stoppable(), _progress(turns) as told:
            yield told

    def tell(self, *reports: Report, several: bool = False) -> None:
        """``several`` reports are one JSON object, and tables with titles."""
        if self.as_json:
            objects = [report.as_object() for report in reports]
            print_json({"reports": objects} if several else objects[0])
        else:
            for number, report in enumerate(reports):
                if number:
                    click.echo()
                _print_report(report, titled=several)
        if self.picture is not None:
            _draw(reports, self.picture)
        if not self.as_json:
            for text in dict.fromkeys(text for report in reports for text in report.notes):
                note(text)
            if reports[0].cores < 2:
                note("with a single core nothing spins, and every receive waits for another process to run")


def report_options(*, runs: int, json_text: str = JSON) -> Decorator:
    """``--runs``, ``--json`` and ``--plot``; they arrive as ``runs`` and ``output``."""

    def wear(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_output(*args: Any, as_json: bool, picture: Path | None, **rest: Any) -> Any:
            return function(*args, output=Output(as_json, picture), **rest)

        return with_options(
            with_output,
            (
                click.option(
                    "--runs",
                    type=click.IntRange(1),
                    default=runs,
                    show_default=True,
                    help="Runs to take medians of.",
                ),
                json_option(json_text),
                click.option(
                    "--plot",
                    "picture",
                    metavar="PICTURE",
                    type=click.Path(dir_okay=False, path_type=Path),
                    help="Draw it too, into this file, whose name ends with .png or .svg; an existing one is replaced.",
                ),
            ),
        )

    return wear


def _print_report(report: Report, *, titled: bool) -> None:
    columns = [
        Column("WAY"),
        *(Column(quantity.title, right=True) for quantity in report.quantities),
        *(Column(f"x {name}", right=True) for name in report.ratios),
        *_over(report),
    ]
    rows = [_cells(report, row) for row in report.rows]
    title = report.title if titled else ""
    for at in _fitting(columns, rows):
        print_table([columns[i] for i in at], [[row[i] for i in at] for row in rows], title=title)
        title = ""


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[list[int]]:
    """Which columns stand side by side: on a terminal as many as fit, always behind the first; elsewhere all."""
    widths = [
        max(len(column.title), *(len(row[at]) for row in rows)) + BESIDE for at, column in enumerate(columns)
    ]
    room = shutil.get_terminal_size().columns - 1 if sys.stdout.isatty() else sum(widths)
    blocks = [[0]]
    for at in range(1, len(columns)):
        if len(blocks[-1]) > 1 and sum(widths[i] for i in blocks[-1]) + widths[at] > room:
            blocks.append([0])
        blocks[-1].append(at)
    return blocks


def _cells(report: Report, row: Row) -> list[str]:
    return [
        row.name,
        *(
            f"{row.values[quantity.key]:,.{quantity.digits}f}" if quantity.key in row.values else ""
            for quantity in report.quantities
        ),
        *(f"{row.ratios[name]:.2f}" if name in row.ratios else "" for name in report.ratios),
        *([" ".join(f"{value:+.1f}" for value in row.over.values())] if report.plain else []),
    ]


def _over(report: Report) -> list[Column]:
    """One column for all differences: a row's name says what it adds something to, and JSON says it too."""
    if not report.plain:
        return []
    name = f" {report.plain[0]}" if len(report.plain) == 1 else ""
    return [Column(f"{report.over} OVER{name}", right=True)]


def _check_picture(picture: Path) -> None:
    """Raises what drawing it would raise, before somebody waits for a measurement."""
    from ospbridge.errors import ConfigurationError
    from ospbridge.plot.looks import Looks, drawing, picture_format

    picture_format(picture)
    with drawing(Looks()):
        pass
    if not os.access(picture.resolve().parent, os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"cannot write a picture to {picture}",
            hint="name a file in a directory that exists and may be written to",
        )


def _draw(reports: Sequence[Report], picture: Path) -> None:
    from ospbridge.bench.drawing import draw_reports
    from ospbridge.plot.looks import Looks, drawing, write

    looks = Looks()
    with drawing(looks):
        write(draw_reports(reports, looks), picture)
    note(f"{picture}: {sum(len(report.panels) for report in reports)} panels")


@contextlib.contextmanager
def _progress(turns: int | None) -> Iterator[Callable[[str], None]]:
    """A bar on standard error, if that is a terminal: one step a subject's turn."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # Redrawn between the turns only: a thread that draws would disturb what is measured.
    progress: Any = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    begun = False
    with progress:
        task = progress.add_task("starting", total=turns)

        def told(name: str) -> None:
            nonlocal begun
            progress.update(task, advance=1 if begun else 0, description=name, refresh=True)
            begun = True

        yield told
