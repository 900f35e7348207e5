"""`ospbridge agents` and `ospbridge describe`: what a simulator offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import json_option, simulator_options
from ospbridge.cli.output import Column, note, print_json, print_table, ranges, short_float
from ospbridge.text import listed, pluralize, printable

if TYPE_CHECKING:
    from ospbridge.cli.options import SimulatorAccess
    from ospbridge.interface import AgentInterface
    from ospbridge.session.blocking import BlockingSession

__all__ = ["agents", "describe", "the_agent"]


@click.command()
@simulator_options
@json_option('Print a list of {"id", "name", "type", "available"}.')
def agents(simulator: SimulatorAccess, as_json: bool) -> None:
    """List the agents of a simulator.

    An agent is available when no client controls it. Ids count within one connection only; use names.
    """
    with simulator.session() as session:
        entries = session.agents()
    if as_json:
        print_json([{"id": e.id, "name": e.name, "type": e.type, "available": e.available} for e in entries])
    elif entries:
        print_table(
            (Column("ID", right=True), Column("NAME"), Column("TYPE"), Column("AVAILABLE")),
            [(str(e.id), e.name, e.type, "yes" if e.available else "no") for e in entries],
        )
    else:
        note(f"{simulator.address} offers no agents")


@click.command()
@click.argument("agent")
@simulator_options
@json_option(
    'Print {"name", "inputs", "outputs", "infos"} with lists of {"name", "min", "max"}; '
    "null where a range is open."
)
def describe(agent: str, simulator: SimulatorAccess, as_json: bool) -> None:
    """Show the inputs, outputs and infos of an agent.

    AGENT is a name, or a shell pattern that matches exactly one.
    """
    with simulator.session() as session:
        interface = session.describe(the_agent(session, agent))
    if as_json:
        print_json(
            {
                "name": interface.name,
                "inputs": ranges(interface.inputs),
                "outputs": ranges(interface.outputs),
                "infos": ranges(interface.infos),
            }
        )
    else:
        _print_interface(interface)


def the_agent(session: BlockingSession, pattern: str) -> str:
    """The one agent of that name, or the one that fits, whoever controls it.

    Raises AgentNotFound, UsageError for more than one.
    """
    from ospbridge.errors import UsageError
    from ospbridge.interface import chosen

    there = dict.fromkeys(entry.name for entry in session.agents())
    # Where none fits, the session says which there are.
    names = tuple(chosen(there, (pattern,))) or session.matching((pattern,), available=False)
    if len(names) > 1:
        raise UsageError(
            f"{pattern!r} fits {len(names)} agents of {session.server}: {listed(names)}",
            hint="name one of them",
        )
    return names[0]


def _print_interface(interface: AgentInterface) -> None:
    kinds = (("input", interface.inputs), ("output", interface.outputs), ("info", interface.infos))
    rows = [
        (kind, str(index), value.name, short_float(value.min), short_float(value.max))
        for kind, values in kinds
        for index, value in enumerate(values)
    ]
    counts = ", ".join(pluralize(len(values), kind) for kind, values in kinds)
    columns = (
        Column("KIND"),
        Column("INDEX", right=True),
        Column("NAME"),
        Column("MIN", right=True),
        Column("MAX", right=True),
    )
    print_table(columns, rows, title=f"{printable(interface.name)} ({printable(interface.type)}): {counts}")
