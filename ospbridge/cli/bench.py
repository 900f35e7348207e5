"""`ospbridge bench`: what the bridge costs on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from ospbridge.bench.exercise import AGENTS, FLEET, HUB, STEP
from ospbridge.cli.bench_options import counts_option, exercise_options, steps_option, think_option
from ospbridge.cli.bench_output import report_options
from ospbridge.cli.options import CloseNames

if TYPE_CHECKING:
    from collections.abc import Sequence

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
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Measure only the subjects whose name begins with NAME, what they add to, and the floors; may be repeated.",
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

    wanted = _chosen(only, tuple(SUBJECTS))
    with output.measuring(runs * len(measured(wanted))) as told:
        report = measure_steps(exercise, runs=runs, think=think, only=wanted, told=told)
    output.tell(report)


@bench.command()
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


@bench.command()
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


@bench.command()
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


@bench.command()
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


@bench.command()
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


def _chosen(only: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    """The names that are wanted; a usage error for what begins none of them."""
    wanted: list[str] = []
    for start in only:
        found = [name for name in names if name.lower().startswith(start.lower())]
        if not found:
            raise click.BadParameter(
                f"{start!r} begins no name; there are {', '.join(map(repr, names))}.", param_hint="--only"
            )
        # A name in full means that one alone, although others begin with it.
        exact = [name for name in found if name.lower() == start.lower()]
        wanted += exact or found
    return tuple(wanted)
