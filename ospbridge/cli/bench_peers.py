"""`ospbridge bench peers`: steps a second, beside other ways to an environment in another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.cli.bench_options import sizes_options, steps_option
from ospbridge.cli.bench_output import report_options

if TYPE_CHECKING:
    from ospbridge.cli.bench_output import Output

__all__ = ["peers"]


@click.command()
@sizes_options("Numbers of an action.", "Numbers of an observation.")
@steps_option(2000)
@report_options(runs=3)
def peers(*, inputs: int, outputs: int, steps: int, runs: int, output: Output) -> None:
    """Measure steps beside other ways to an environment in another process.

    Those are gymnasium's AsyncVectorEnv with one environment, shared memory and all its defaults, and dm_env_rpc with
    its own connection and environment, whose server is a process. Behind each is an environment of the same spaces
    that computes nothing; behind the direct and the hub environment a simulator that answers from bytes made before.
    All take turns. Ratios are of steps a second, taken within a run: more is faster. A peer that is not installed is
    told, and left out.
    """
    from ospbridge.bench.peers import OURS, PEERS, measure_peers, not_installed

    turns = runs * (len(OURS) + len(PEERS) - len(not_installed()))
    with output.measuring(turns) as told:
        report = measure_peers(inputs=inputs, outputs=outputs, steps=steps, runs=runs, told=told)
    output.tell(report)
