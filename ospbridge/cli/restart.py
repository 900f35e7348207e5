"""`ospbridge restart-communication`: the way out when a dead client holds agents and left no lease.

At a server that answers nobody while it waits for a dead one of ours it is the way in as well, by that one's lease.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import simulator_options
from ospbridge.cli.output import note, say
from ospbridge.text import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.cli.options import SimulatorAccess
    from ospbridge.interface import AgentEntry

__all__ = ["restart_communication"]


@click.command("restart-communication")
@click.option("--yes", is_flag=True, help="Do it without asking.")
@simulator_options
def restart_communication(yes: bool, simulator: SimulatorAccess) -> None:
    """Disconnect every client of a simulator.

    All agents are free afterwards, also those of dead clients. Running clients lose their sessions in mid-episode.
    """
    from ospbridge.osp.timing import RESTART_SETTLES

    # A server that waits for a dead client of ours may answer nobody else. A goodbye in its name is no more than what
    # was asked for, and its lease says that it is dead.
    with simulator.session(rejoin_locked=True) as session:
        held = [entry.name for entry in session.agents() if not entry.available]
        if not yes:
            _ask(simulator, held)
        held = [*session.freed, *held]
        confirmed = session.restart_communication()
    time.sleep(RESTART_SETTLES)
    with simulator.session() as session:
        entries = session.agents()
    _report(simulator, held, entries, confirmed=confirmed)


def _ask(simulator: SimulatorAccess, held: Sequence[str]) -> None:
    from ospbridge.errors import UsageError

    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            f"this disconnects every client of {simulator.address}, and nobody is there to ask",
            hint="add --yes to do it all the same",
        )
    holds = f"; controlled now: {listed(held)}" if held else "; no agent is controlled now"
    click.confirm(f"Disconnect every client of {simulator.address}{holds}?", abort=True, err=True)


def _report(
    simulator: SimulatorAccess, held: Sequence[str], entries: Sequence[AgentEntry], *, confirmed: bool
) -> None:
    free = {entry.name for entry in entries if entry.available}
    freed = [name for name in held if name in free]
    taken = [entry.name for entry in entries if not entry.available]
    if not confirmed:
        note("the simulator did not confirm it; it often does not, although it does what was asked")
    if freed:
        say(f"Disconnected every client of {simulator.address}; freed: {listed(freed)}")
    elif not held:
        click.echo(f"Disconnected every client of {simulator.address}; all agents were free before")
    if taken:
        note(
            f"controlled again, or still: {listed(taken)}; clients that rebuild their sessions take them back"
        )
