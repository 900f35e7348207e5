"""`ospbridge bench startup`: what beginning costs, beside what Python alone takes to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.cli.bench_choosing import chosen, only_option
from ospbridge.cli.bench_output import report_options

if TYPE_CHECKING:
    from ospbridge.cli.bench_output import Output

__all__ = ["startup"]


@click.command()
@only_option("Measure only the subjects whose name begins with NAME, and the floor; may be repeated.")
@report_options(runs=10)
def startup(*, runs: int, only: tuple[str, ...], output: Output) -> None:
    """Measure how long programs take until they are of use.

    The floor is `python -c pass`. Imports and commands are followed to their end, environments to their first
    observation, the daemon until its hub accepts. Least and median of the runs, in turn; modules are compiled, since
    each subject has a turn before that does not count.
    """
    from ospbridge.bench.startup import FLOOR, STARTS, measure_startup

    wanted = chosen(only, tuple(STARTS))
    subjects = len({FLOOR, *wanted}) if wanted else len(STARTS)
    with output.measuring((runs + 1) * subjects) as told:
        report = measure_startup(runs=runs, only=wanted, told=told)
    output.tell(report)
