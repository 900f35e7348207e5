"""`ospbridge bench`: what the bridge costs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ospbridge.bench.exercise import STEP
from ospbridge.cli.bench_all import measure_all
from ospbridge.cli.bench_choosing import chosen, only_option
from ospbridge.cli.bench_many import agents, fleet, hub
from ospbridge.cli.bench_options import exercise_options, think_option
from ospbridge.cli.bench_output import report_options
from ospbridge.cli.bench_peers import peers
from ospbridge.cli.bench_relay import relay
from ospbridge.cli.bench_scale import memory, scale
from ospbridge.cli.bench_stalls import stalls
from ospbridge.cli.bench_startup import startup
from ospbridge.cli.options import CloseNames

if TYPE_CHECKING:
    from ospbridge.bench.exercise import Exercise
    from ospbridge.cli.bench_output import Output

__all__ = ["bench"]

STEP_JSON: Final = (
    'Print {"measured", "title", "inputs", "outputs", "steps", "runs", "profile", "think", "cores", "subjects"}, the '
    'latter as a list of {"name", "p50_us", "p90_us", "p99_us", "steps_per_second", "processor_us", '
    '"processor_percent", "ratios", "over_us"}; ratios by the name of the floor, over_us '
    "by the name of the subject that this one adds something to."
)


@click.group(cls=CloseNames)
def bench() -> None:
    """Measure what the bridge costs."""


@bench.command()
@exercise_options(STEP)
@think_option(0.0)
@only_option(
    "Measure only the subjects whose name begins with NAME, what they add to, and the floors; may be repeated."
)
@report_options(json_text=STEP_JSON, runs=20)
def step(*, exercise: Exercise, runs: int, think: float, only: tuple[str, ...], output: Output) -> None:
    """Measure a step on each way from a program to a simulator.

    The simulator is a process that answers from bytes made before. The floors are bare sockets that exchange the same
    four datagrams: the blocking floor sleeps in each receive, the spinning floor never sleeps. All take turns; figures
    are medians of the runs, and ratios are those of the medians of single steps within a run. What a scenario and the
    wrappers of gymnasium cost is also told as a difference to the environment without them. CPU is processor time of
    the client, for a step and as a part of a core.
    """
    from ospbridge.bench.step import measure_steps, measured
    from ospbridge.bench.subjects import SUBJECTS

    wanted = chosen(only, tuple(SUBJECTS))
    with output.measuring(runs * len(measured(wanted))) as told:
        report = measure_steps(exercise, runs=runs, think=think, only=wanted, told=told)
    output.tell(report)


for _other in (measure_all, agents, fleet, hub, startup, relay, peers, stalls, scale, memory):
    bench.add_command(_other)
