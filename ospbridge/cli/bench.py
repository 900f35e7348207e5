"""`ospbridge bench`: what the bridge costs on this machine."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import CloseNames, json_option
from ospbridge.cli.output import Column, note, print_json, print_table
from ospbridge.cli.stopping import stoppable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ospbridge.bench.figures import Figures

__all__ = ["bench"]


@click.group(cls=CloseNames)
def bench() -> None:
    """Measure what the bridge costs."""


@bench.command()
@click.option(
    "--inputs", type=click.IntRange(1, 4000), default=8, show_default=True, help="Inputs of the agent."
)
@click.option(
    "--outputs", type=click.IntRange(1, 4000), default=16, show_default=True, help="Outputs of the agent."
)
@click.option(
    "--steps",
    type=click.IntRange(10),
    default=2000,
    show_default=True,
    help="Steps of each subject in each run.",
)
@click.option("--runs", type=click.IntRange(1), default=3, show_default=True, help="Runs to take medians of.")
@click.option(
    "--profile",
    type=click.Choice(["document", "nerd"]),
    default="document",
    show_default=True,
    help="Kind of server to measure against.",
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Measure only the subjects whose name begins so, what they add to, and the floors; may be repeated.",
)
@json_option(
    'Print {"inputs", "outputs", "steps", "runs", "profile", "cores", "subjects"}, the latter with lists of '
    '{"name", "p50_us", "p99_us", "steps_per_second", "ratios", "over_us"}; ratios by the name of the floor, over_us '
    "by the name of the subject that this one adds something to."
)
def step(
    *,
    inputs: int,
    outputs: int,
    steps: int,
    runs: int,
    profile: str,
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a step on each way from a program to a simulator.

    The simulator is a process that answers from bytes made before. The floors are bare sockets that exchange the same
    four datagrams: the blocking floor sleeps in each receive, the spinning floor never sleeps. All take turns; figures
    are medians of the runs, and ratios are those of the medians of single steps within a run. What a scenario and the
    wrappers of gymnasium cost is also told as a difference to the environment without them.
    """
    from ospbridge.bench.step import measure_steps, measured
    from ospbridge.bench.subjects import FLOORS, SUBJECTS

    chosen = _chosen(only, tuple(SUBJECTS))
    turns = runs * len(measured(chosen))
    with stoppable(), _progress(turns) as told:
        figures = measure_steps(
            inputs=inputs,
            outputs=outputs,
            steps=steps,
            runs=runs,
            profile=profile,
            only=chosen,
            told=told,
        )
    cores = len(os.sched_getaffinity(0))
    if as_json:
        print_json(
            {
                "inputs": inputs,
                "outputs": outputs,
                "steps": steps,
                "runs": runs,
                "profile": profile,
                "cores": cores,
                "subjects": [each.as_object() for each in figures],
            }
        )
        return
    _print_figures(figures, FLOORS)
    if cores < 2:
        note("with a single core nothing spins, and every receive waits for another process to run")


def _chosen(only: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    chosen = []
    for wanted in only:
        found = [name for name in names if name.lower().startswith(wanted.lower())]
        if not found:
            raise click.BadParameter(
                f"{wanted!r} begins no subject's name; there are {', '.join(names)}.", param_hint="--only"
            )
        # A name in full means that one alone, although others begin with it.
        exact = [name for name in found if name.lower() == wanted.lower()]
        chosen += exact or found
    return tuple(chosen)


def _print_figures(figures: Sequence[Figures], floors: Sequence[str]) -> None:
    plain = dict.fromkeys(name for each in figures for name in each.over)
    columns = (
        Column("WAY"),
        Column("P50 us", right=True),
        Column("P99 us", right=True),
        Column("STEPS/s", right=True),
        *(Column(f"x {floor}", right=True) for floor in floors),
        *(Column(f"us OVER {name}", right=True) for name in plain),
    )
    rows = [
        (
            each.name,
            f"{each.p50:.1f}",
            f"{each.p99:.1f}",
            f"{each.steps_per_second:,.0f}",
            *(f"{each.ratios[floor]:.2f}" for floor in floors),
            *(f"{each.over[name]:+.1f}" if name in each.over else "" for name in plain),
        )
        for each in figures
    ]
    print_table(columns, rows)


@contextlib.contextmanager
def _progress(turns: int) -> Iterator[Callable[[str], None]]:
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
