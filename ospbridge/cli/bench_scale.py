"""`ospbridge bench scale` and `ospbridge bench memory`: what there being more costs, and whether anything grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.bench_output import JSON, Output, report_options
from ospbridge.cli.numbers import NumberRange
from ospbridge.cli.options import json_option
from ospbridge.cli.output import note

if TYPE_CHECKING:
    from ospbridge.bench.report import Report

__all__ = ["memory", "scale"]

PARTS: Final = ("agents", "values", "simulators", "processes", "spool")


@click.command()
@click.option(
    "--only", "parts", multiple=True, type=click.Choice(PARTS), help="Measure only this; may be repeated."
)
@click.option(
    "--share",
    type=NumberRange(0, 1, min_open=True),
    default=1.0,
    show_default=True,
    help="Go up to this share of the largest sizes.",
)
@report_options(runs=1)
def scale(*, parts: tuple[str, ...], share: float, runs: int, output: Output) -> None:
    """Measure what a step and the memory cost where there is more.

    1 to 64 agents of one simulator, 10 to 10,000 values of an agent, 1 to 64 simulators of one daemon, 1 to 32
    processes with an environment each at one hub, and a week of episodes, one a second, in a spool. P50 FOR EACH is
    the time of a step shared among all that took part; where it does not rise, steps grow in proportion or better.
    Memory is what is resident behind the last step. The spool is filled once, however many runs the others make. The
    whole takes some minutes, and 6 GB of disk below $TMPDIR.
    """
    from ospbridge.bench.scale import PARTS as MEASURED
    from ospbridge.bench.scale import measure_part, sizes
    from ospbridge.bench.scale_spool import SHARES, WEEK, measure_spool

    wanted = [part for part in PARTS if not parts or part in parts]
    turns = sum(
        runs * len(sizes(MEASURED[part], share)) if part in MEASURED else len(SHARES) for part in wanted
    )
    reports: list[Report] = []
    with output.measuring(turns) as told:
        for part in wanted:
            if part in MEASURED:
                reports.append(measure_part(MEASURED[part], share=share, runs=runs, told=told))
            else:
                reports.append(measure_spool(episodes=round(WEEK * share), told=told))
    output.tell(*reports, several=True)


@click.command()
@click.option(
    "--steps",
    type=click.IntRange(100),
    default=1_000_000,
    show_default=True,
    help="Steps of each environment.",
)
@click.option(
    "--room",
    type=NumberRange(0),
    metavar="MB",
    help="End with exit code 1 where memory grows by more.",
)
@json_option(JSON)
@click.pass_context
def memory(context: click.Context, *, steps: int, room: float | None, as_json: bool) -> None:
    """Measure whether memory grows while environments step.

    A direct environment and one at a hub, one behind the other, with a reset every thousand steps. Resident memory of
    client and daemon behind a tenth of the steps is compared with that behind all.
    """
    from ospbridge.bench.memory import GROWN, measure_memory

    output = Output(as_json)
    with output.measuring(2) as told:
        report = measure_memory(steps=steps, told=told)
    output.tell(report)
    grown = max(row.values[key] for row in report.rows for key in GROWN if key in row.values)
    if room is not None and grown > room:
        note(f"memory grew by {grown:.2f} MB, by more than {room:g}")
        context.exit(1)
