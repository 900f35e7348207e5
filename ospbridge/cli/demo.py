"""`ospbridge demo`: simulator, daemon and two environments, each in a process of its own, at work for a moment."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.output import Column, print_table, say
from ospbridge.cli.stopping import deferred, stoppable, uninterrupted
from ospbridge.text import listed, pluralize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from ospbridge.bench.driver import Began, Ended
    from ospbridge.bench.processes import Program
    from ospbridge.interface import AgentEntry

__all__ = ["demo"]

START: Final = 30.0
"""Seconds that a program may take to start, and a driver between two reports."""
ROBOTS: Final = 2
EPISODE: Final = 100
"""Most steps of an episode."""


@click.command()
@click.option("--env", metavar="ID", help="Show this Gymnasium environment, twice, instead of the robots.")
@click.option(
    "--steps",
    type=click.IntRange(1, 1_000_000),
    default=600,
    show_default=True,
    metavar="N",
    help="Steps that each agent takes.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 2),
    default=1,
    show_default=True,
    help="Seed of world and actions.",
)
def demo(env: str | None, steps: int, seed: int) -> None:
    """Show the bridge at work on a small robot world.

    Starts a simulator with two robots, the daemon between it and environments, and two programs that step an
    environment each; tells what happened, and ends all of it. Nothing is left behind.
    """
    from ospbridge.transport.unix import room_for_sockets

    with stoppable(), _all_ended() as stack:
        hosted = ("--env", env, "--copies", str(ROBOTS)) if env else ("--arena", "--robots", str(ROBOTS))
        simulator = _start(stack, "the simulator", "ospbridge", "sim", *hosted, "--port", "0", "--quiet")
        address = simulator.line(START)
        click.echo(f"simulator at {address}, hosting {env or 'two-wheeled robots in a walled arena'}")
        agents = _agents(address)
        say(f"agents: {listed(f'{agent.name} ({agent.type})' for agent in agents)}")

        directory = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="ospb-", dir=room_for_sockets(), ignore_cleanup_errors=True)
        )
        hub = f"unix:{Path(directory) / 'hub'}"
        joined = ("--simulator", address, "--hub", hub, "--quorum", str(len(agents)))
        daemon = _start(
            stack, "the daemon", "ospbridge", "connect", *joined, directory=directory, heard=False
        )
        click.echo(f"daemon at {hub}; the first reset waits for {pluralize(len(agents), 'environment')}")

        drivers = {}
        taken = ("--steps", str(steps), "--episode", str(min(EPISODE, steps)), "--seed", str(seed))
        for agent in agents:
            driven = ("--bridge", hub, "--agent", agent.name, *taken)
            drivers[agent.name] = _start(
                stack, f"the environment of {agent.name}", "ospbridge.bench.driver", *driven
            )
        click.echo(
            f"stepping: {pluralize(len(agents), 'program')}, {pluralize(steps, 'step')} each, at random, in lock-step"
        )
        outcome = _watch(drivers, (simulator, daemon), steps)
    _report(outcome)
    _next_commands(env, agents[0].name)


@contextlib.contextmanager
def _all_ended() -> Iterator[contextlib.ExitStack]:
    """Everything on the stack is ended, and impatience does not interrupt that."""
    stack = contextlib.ExitStack()
    try:
        yield stack
    finally:
        with uninterrupted():
            stack.close()


def _start(
    stack: contextlib.ExitStack, name: str, module: str, *args: str, directory: str = "", heard: bool = True
) -> Program:
    from ospbridge.bench.processes import Program

    # The user's own leases and hubs are none of the demo's business.
    environment = {"RUNTIME_DIRECTORY": directory} if directory else {}
    with deferred():
        program = Program(module, *args, name=name, environment=environment, heard=heard)
        return stack.enter_context(program)


def _agents(address: str) -> tuple[AgentEntry, ...]:
    from ospbridge.session.blocking import BlockingSession

    with BlockingSession.connect(address, reclaim_stale=False) as session:
        return session.agents()


# --- watching and telling -------------------------------------------------------------------------------------------


def _watch(
    drivers: dict[str, Program], others: Sequence[Program], steps: int
) -> dict[str, tuple[Began, Ended]]:
    """What each driver reported, by agent; a program that fails or falls silent ends the demo."""
    from ospbridge.bench.driver import Began, Ended, Reached, decode_report
    from ospbridge.bench.processes import lines_of

    began: dict[str, Began] = {}
    ended: dict[str, Ended] = {}
    with _progress(drivers, steps) as reached:
        for agent, line in lines_of(drivers, beside=others, seconds=START):
            report = decode_report(line)
            if isinstance(report, Began):
                began[agent] = report
            elif isinstance(report, Reached):
                reached(agent, report.steps)
            elif isinstance(report, Ended):
                ended[agent] = report
                reached(agent, report.steps)
    return {agent: (began[agent], ended[agent]) for agent in drivers}


@contextlib.contextmanager
def _progress(agents: Iterable[str], steps: int) -> Iterator[Callable[[str, int], None]]:
    """Bars on a terminal, a line for each agent that is done elsewhere."""
    if not sys.stdout.isatty():

        def tell(agent: str, done: int) -> None:
            if done >= steps:
                click.echo(f"{agent}: {pluralize(done, 'step')} done")

        yield tell
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    ) as bars:
        tasks = {agent: bars.add_task(agent, total=steps) for agent in agents}
        yield lambda agent, done: bars.update(tasks[agent], completed=done)


def _report(outcome: dict[str, tuple[Began, Ended]]) -> None:
    click.echo()
    for agent, (began, _) in outcome.items():
        click.echo(f"{agent}: observation {began.observation}, action {began.action}")
    click.echo()
    columns = (
        Column("AGENT"),
        Column("STEPS", right=True),
        Column("STEPS/s", right=True),
        Column("P50 us", right=True),
        Column("P90 us", right=True),
        Column("P99 us", right=True),
        Column("EPISODES", right=True),
        Column("MEAN RETURN", right=True),
    )
    rows = []
    for agent, (_, ended) in outcome.items():
        times = (f"{time:.0f}" for time in (ended.p50_us, ended.p90_us, ended.p99_us))
        returns = ended.returns
        mean = f"{sum(returns) / len(returns):.2f}" if returns else "-"
        rows.append(
            (agent, str(ended.steps), f"{ended.steps_per_second:,.0f}", *times, str(len(returns)), mean)
        )
    print_table(columns, rows)


def _next_commands(env: str | None, agent: str) -> None:
    program = _program()
    hosted = f"--env {shlex.quote(env)} --copies {ROBOTS}" if env else f"--arena --robots {ROBOTS}"
    click.echo()
    click.echo("Try next, each in a terminal of its own:")
    click.echo(f"  {program} sim {hosted}")
    click.echo(f"  {program} describe {shlex.quote(agent)}")
    click.echo(f"  {program} connect")
    click.echo(f'then, in Python: gymnasium.make("ospbridge:ospbridge/Agent-v0", agent="{agent}")')


def _program() -> str:
    """How this command was called, so that the next ones can be called alike."""
    called = Path(sys.argv[0])
    if called.name != "ospbridge":
        return "python -m ospbridge"
    found = shutil.which("ospbridge")
    return "ospbridge" if found and Path(found).resolve() == called.resolve() else shlex.quote(sys.argv[0])
