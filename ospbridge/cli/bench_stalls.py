"""`ospbridge bench stalls`: what the scheduling policy of a simulator's threads makes of its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.cli.bench_options import steps_option
from ospbridge.cli.bench_output import report_options

if TYPE_CHECKING:
    from ospbridge.cli.bench_output import Output

__all__ = ["stalls"]


@click.command()
@steps_option(1000)
@click.option(
    "--busy",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    metavar="MICROSECONDS",
    help="Let a step keep the server busy for so long.",
)
@report_options(runs=5)
def stalls(*, steps: int, busy: int, runs: int, output: Output) -> None:
    """Measure a server that loses wake-ups, by its scheduling policy.

    The server is a C program, which is built with `cc` first. It has the fault of the NERD toolkit's servers: a thread
    that is woken before it sleeps then sleeps for 50 ms. Its client is a bare socket that sends each request at once.
    STALLED is the share of steps that took longer than 45 ms. A turn ends after ten seconds, however few steps it made.
    """
    from ospbridge.bench.stalls import WAYS, measure_stalls

    with output.measuring(runs * len(WAYS)) as told:
        report = measure_stalls(steps=steps, busy=busy, runs=runs, told=told)
    output.tell(report)
