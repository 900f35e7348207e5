"""`ospbridge bench agents`, `fleet` and `hub`: steps of many agents at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.bench.exercise import AGENTS, FLEET, HUB
from ospbridge.cli.bench_options import counts_option, exercise_options, think_option
from ospbridge.cli.bench_output import report_options

if TYPE_CHECKING:
    from ospbridge.bench.exercise import Exercise
    from ospbridge.cli.bench_output import Output

__all__ = ["agents", "fleet", "hub"]


@click.command()
@counts_option(
    "--agents", (1, 4, 16, 64), most=256, help_text="Number of agents of one simulator; may be repeated."
)
@exercise_options(AGENTS)
@report_options(runs=5)
def agents(*, counts: tuple[int, ...], exercise: Exercise, runs: int, output: Output) -> None:
    """Measure a step of many agents of one simulator.

    All agents are one client's. With the profile document all their requests are under way at once; with nerd each
    waits for the acknowledgement of the one before. For each number of agents the two floors are bare sockets with the
    same datagrams. "x one agent's" compares what a step costs each of them (EACH) with the environment of a single
    agent.
    """
    from ospbridge.bench.agents import measure_agents

    with output.measuring(runs * (1 + 3 * len(counts))) as told:
        report = measure_agents(counts, exercise, runs=runs, told=told)
    output.tell(report)


@click.command()
@counts_option(
    "--simulators", (1, 4, 16, 32, 64), most=256, help_text="Number of simulators; may be repeated."
)
@think_option(0.001)
@exercise_options(FLEET)
@report_options(runs=5)
def fleet(*, counts: tuple[int, ...], exercise: Exercise, think: float, runs: int, output: Output) -> None:
    """Measure steps of many simulators that think at the same time.

    Each simulator has one agent, and all are stepped together, by bare sockets (the floors) and by one vector
    environment. ENV STEPS/s are those of all environments together, and "x one simulator's" is their gain.
    """
    from ospbridge.bench.fleet import measure_fleet

    with output.measuring(runs * 3 * len(counts)) as told:
        report = measure_fleet(counts, exercise, runs=runs, think=think, told=told)
    output.tell(report)


@click.command()
@counts_option(
    "--agents", (1, 4, 16, 32), most=64, help_text="Number of agents of one daemon; may be repeated."
)
@exercise_options(HUB)
@report_options(runs=5)
def hub(*, counts: tuple[int, ...], exercise: Exercise, runs: int, output: Output) -> None:
    """Measure steps of many environments at one daemon, in lock-step.

    For each number of agents: bare sockets (the floors); the daemon's conductor without its hub, once beside a
    simulator with a core to itself and once beside one that sleeps between steps, as that of the processes does; as
    many environments in processes of their own; and one client with a vector environment of them all. CPU is that of
    one client, DAEMON CPU that of the daemon, for a step.
    """
    from ospbridge.bench.hub import measure_hub

    turns = sum(5 + (count > 1) for count in counts)
    with output.measuring(runs * turns) as told:
        report = measure_hub(counts, exercise, runs=runs, told=told)
    output.tell(report)
