"""`ospbridge bench relay`: what relaying experience costs, and acting with a policy from upstream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.cli.bench_options import steps_option
from ospbridge.cli.bench_output import report_options

if TYPE_CHECKING:
    from ospbridge.cli.bench_output import Output

__all__ = ["relay"]


@click.command()
@steps_option(10_000)
@click.option(
    "--batches",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Batches of 500 steps that a driving client sends in each run.",
)
@click.option(
    "--ray-python",
    metavar="PYTHON",
    help="Measure the client that Ray brings too, with this interpreter, which has ray[rllib] 2.49 or later.",
)
@report_options(runs=3)
def relay(*, steps: int, batches: int, runs: int, ray_python: str | None, output: Output) -> None:
    """Measure what it costs to relay experience, and to drive.

    The first table has a hub environment in episodes of 100 steps, without an upstream, and with a sink that is
    sent all of them by way of the spool; beside a simulator that never sleeps, and beside one that sleeps between
    steps, as simulators do. The best of four turns of each counts in a run, which they take alternately, with
    programs that are started anew in between. The second has the daemon acting for an agent with
    a network of 64 x 64 (mode drive), timed by an RLlink server from the weights it hands out to the batch that
    they bring; beside it the spinning floor on the same simulator, and CartPole by the daemon, with a simulator,
    and by Ray's own client, which has it in its own process.
    """
    from ospbridge.bench.relaying import STARTS, measure_driving, measure_relaying

    with output.measuring(runs * (3 + 4 * STARTS + (ray_python is not None))) as told:
        # First what fails at once where Ray is missing.
        driven = measure_driving(batches=batches, runs=runs, ray_python=ray_python, told=told)
        relayed = measure_relaying(steps=steps, runs=runs, told=told)
    output.tell(relayed, driven, several=True)
