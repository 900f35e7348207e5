"""``ospbridge sim``: host a world behind an OSP server."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.completion import scenarios
from ospbridge.cli.options import NumberRange
from ospbridge.cli.stopping import deaf

if TYPE_CHECKING:
    from ospbridge.osp.world import World
    from ospbridge.simulator.udp import UdpSimulator

__all__ = ["sim"]

ROBOTS = 2
"""Of the arena where nobody says how many."""
PROBABILITY = NumberRange(0.0, 1.0)
STEP_WITHIN = 2.0
"""Seconds that a step which is under way may take when the simulator is told to end."""


def _sizes(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int, int] | None:
    """Three numbers; infos may be left out."""
    if value is None:
        return None
    parts = value.split(",")
    if len(parts) not in (2, 3) or not all(part.strip().isdecimal() for part in parts):
        raise click.BadParameter(f"{value!r} is not three numbers such as 8,16,2.", context, parameter)
    inputs, outputs, infos = (*(int(part) for part in parts), 0)[:3]
    if max(inputs, outputs + infos) > 16_000:
        raise click.BadParameter(
            f"{value!r}: a datagram holds at most about 16,000 values.", context, parameter
        )
    return inputs, outputs, infos


@click.command()
@click.argument("scenario", required=False, shell_complete=scenarios)
@click.option(
    "--env", "envs", multiple=True, metavar="ID", help="Host this Gymnasium environment; may be repeated."
)
@click.option("--copies", type=click.IntRange(1, 1000), default=1, help="Host each --env that many times.")
@click.option("--arena", is_flag=True, help="Host two-wheeled robots in a walled arena (the default world).")
@click.option("--robots", type=click.IntRange(1, 64), default=ROBOTS, help="How many robots the arena has.")
@click.option(
    "--synthetic",
    callback=_sizes,
    metavar="IN,OUT,INFO",
    help="Host agents with that many inputs, outputs and infos.",
)
@click.option("--agents", type=click.IntRange(1, 1000), default=1, help="How many synthetic agents.")
@click.option(
    "--values",
    type=click.IntRange(0, 1_000_000),
    default=0,
    help="How many extra variables with --synthetic.",
)
@click.option(
    "--think", type=NumberRange(0.0, 3600.0), default=0.0, help="Seconds that a synthetic step sleeps."
)
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=45454, help="Port to listen at; 0 picks one.")
@click.option(
    "--profile",
    type=click.Choice(["document", "nerd"]),
    default="document",
    help="Which kind of OSP server to be: the text of OSP 1.1, or the NERD toolkit's.",
)
@click.option(
    "--stall",
    type=PROBABILITY,
    default=0.0,
    help="Probability that a completion comes 50 ms late, and that a step of the nerd profile runs 5 ms late.",
)
@click.option(
    "--lose-reset",
    type=PROBABILITY,
    help="Probability that a reset directly behind another is acknowledged and lost. "
    "[default: 1/300 where the nerd profile stalls, else 0]",
)
@click.option("--drop", type=PROBABILITY, default=0.0, help="Probability that a datagram is lost.")
@click.option("--duplicate", type=PROBABILITY, default=0.0, help="Probability that a datagram comes twice.")
@click.option(
    "--reorder", type=PROBABILITY, default=0.0, help="Probability that a datagram comes behind the next one."
)
@click.option("--delay", type=PROBABILITY, default=0.0, help="Probability that a datagram is late.")
@click.option(
    "--delay-max",
    type=NumberRange(0.0, 60.0),
    default=0.1,
    help="Most seconds that a late datagram takes.",
)
@click.option("--seed", type=int, default=0, help="Seed of the faults: the same seed, the same faults.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write every step and reset that ran to FILE, as JSON lines.",
)
@click.option("--quiet", is_flag=True, help="Say nothing but the address.")
def sim(  # noqa: PLR0917  # click passes options by name
    scenario: str | None,
    envs: tuple[str, ...],
    copies: int,
    arena: bool,
    robots: int,
    synthetic: tuple[int, int, int] | None,
    agents: int,
    values: int,
    think: float,
    host: str,
    port: int,
    profile: str,
    stall: float,
    lose_reset: float | None,
    drop: float,
    duplicate: float,
    reorder: float,
    delay: float,
    delay_max: float,
    seed: int,
    ledger: str | None,
    quiet: bool,
) -> None:
    """Run a simulator that speaks OSP.

    SCENARIO is a TOML file, or the name of a scenario that comes with ospbridge: its world is hosted.

    The first line of output is the address, HOST:PORT. SIGTERM and Ctrl-C end it with exit code 0.
    """
    from ospbridge.osp.profile import PROFILES
    from ospbridge.simulator.faults import FaultPlan
    from ospbridge.simulator.ledger import Ledger
    from ospbridge.simulator.udp import UdpSimulator

    # What an environment's packages print when they are imported, as pygame does, is not the address.
    with contextlib.redirect_stdout(sys.stderr):
        world = _make_world(scenario, envs, copies, arena, robots, synthetic, agents, values, think)
    faults = FaultPlan(
        drop=drop, duplicate=duplicate, reorder=reorder, delay=delay, delay_max=delay_max, seed=seed
    )
    with contextlib.ExitStack() as stack:
        stack.callback(getattr(world, "close", lambda: None))
        book = stack.enter_context(Ledger(ledger)) if ledger else None
        log = None if quiet else _logger()
        simulator = UdpSimulator(
            world,
            host=host,
            port=port,
            profile=PROFILES[profile],
            stall=stall,
            lose_reset=lose_reset,
            faults=faults,
            ledger=book,
            report=None if log is None else lambda counts: log.warning("datagrams ignored", **_keys(counts)),
        )
        stack.callback(simulator.stop)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: _stop(simulator))
        click.echo(str(simulator.address))
        if log is not None:
            log.info(
                "simulator ready",
                address=str(simulator.address),
                profile=profile,
                agents=[agent.name for agent in world.agents][:20],
            )
        simulator.run()
    deaf(signal.SIGTERM, signal.SIGINT)


def _stop(simulator: UdpSimulator) -> None:
    """End with the step that is under way, or without it where the world thinks for too long."""
    import os
    import threading

    simulator.stop_soon()
    # The ledger is flushed line by line, and nothing else would be written.
    timer = threading.Timer(STEP_WITHIN, os._exit, (0,))
    timer.daemon = True
    timer.start()


def _make_world(  # noqa: PLR0917  # the options of the command, in their order
    scenario: str | None,
    envs: tuple[str, ...],
    copies: int,
    arena: bool,
    robots: int,
    synthetic: tuple[int, int, int] | None,
    agents: int,
    values: int,
    think: float,
) -> World:
    """The one world that was asked for."""
    if bool(envs) + arena + (synthetic is not None) + (scenario is not None) > 1:
        raise click.UsageError(
            "A scenario, --env, --arena and --synthetic exclude each other: one simulator, one world."
        )
    if robots != ROBOTS and (envs or synthetic is not None or scenario is not None):
        raise click.UsageError("--robots needs the arena.")
    if not envs and copies != 1:
        raise click.UsageError("--copies needs --env.")
    if synthetic is None and (agents != 1 or values or think):
        raise click.UsageError("--agents, --values and --think need --synthetic.")
    if scenario is not None:
        from ospbridge.simulator.hosting import world_of
        from ospbridge.task.loading import load

        return world_of(load(scenario))
    if envs:
        from ospbridge.simulator.gym_world import GymWorld

        return GymWorld([env_id for env_id in envs for _ in range(copies)])
    if synthetic is not None:
        from ospbridge.simulator.synthetic import SyntheticWorld

        return SyntheticWorld(*synthetic, agents=agents, values=values, think=think)
    from ospbridge.simulator.arena import ArenaWorld

    return ArenaWorld(robots)


def _logger() -> Any:
    """A log on standard error; standard output has the address and nothing else."""
    import structlog

    from ospbridge.observe.logs import unfailing

    tty = sys.stderr.isatty()
    return structlog.wrap_logger(
        structlog.WriteLogger(unfailing(sys.stderr)),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.dev.ConsoleRenderer() if tty else structlog.processors.JSONRenderer(),
        ],
    )


def _keys(counts: dict[str, int]) -> dict[str, int]:
    return {kind.replace(" ", "_"): count for kind, count in counts.items()}
