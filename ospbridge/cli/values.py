"""`ospbridge values`: the variables of a simulator's repository."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import LONGEST, CloseNames, NumberRange, json_option, simulator_options
from ospbridge.cli.output import Column, note, print_json, print_json_line, print_table, say
from ospbridge.cli.stopping import stoppable
from ospbridge.text import printable

if TYPE_CHECKING:
    from ospbridge.cli.options import SimulatorAccess
    from ospbridge.errors import ValueNotFound
    from ospbridge.interface import ValueReading
    from ospbridge.session.blocking import BlockingSession

__all__ = ["values"]


@click.group(cls=CloseNames)
def values() -> None:
    """List, get, set and watch values of a simulator."""


@values.command("list")
@click.argument("expression", default=".*")
@simulator_options
@json_option('Print a list of {"name", "type"}.')
def list_(expression: str, simulator: SimulatorAccess, as_json: bool) -> None:
    """List the values whose name fits a regular expression.

    The simulator matches EXPRESSION, and kinds of simulators differ: a server that follows the document finds it
    anywhere in a name, with a NERD server it must match the whole name. The default is `.*`: all values.
    """
    with simulator.session() as session:
        entries = session.values(expression)
        if not entries and expression != ".*":
            raise _nothing_fits(session, expression)
    if as_json:
        print_json([{"name": entry.name, "type": entry.type} for entry in entries])
    elif entries:
        print_table((Column("NAME"), Column("TYPE")), [(entry.name, entry.type) for entry in entries])
    else:
        note(f"{simulator.address} has no values")


def _nothing_fits(session: BlockingSession, expression: str) -> ValueNotFound:
    from ospbridge.errors import ValueNotFound
    from ospbridge.osp.repository import compile_expression

    try:
        compile_expression(expression)
    except re.error as error:
        hint = f"it seems to be no regular expression: {error}"
    else:
        hint = "`ospbridge values list` shows all names"
        if session.profile.matches_whole_names:
            hint = f"this simulator wants it to fit the whole name: try '.*{expression}.*'"
    return ValueNotFound(f"no value of {session.server} fits the expression {expression!r}", hint=hint)


@values.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@simulator_options
@json_option('Print {"name", "type", "value"}, for several names a list of them.')
def get(names: tuple[str, ...], simulator: SimulatorAccess, as_json: bool) -> None:
    """Show values, as the simulator writes them."""
    with simulator.session() as session:
        readings = [_get(session, name) for name in names]
    if as_json:
        objects = [_as_object(reading) for reading in readings]
        print_json(objects if len(names) > 1 else objects[0])
    else:
        _print_readings(readings)


def _get(session: BlockingSession, name: str) -> ValueReading:
    """A value; one that is not there is answered with the names that come close."""
    from ospbridge.errors import ValueNotFound

    try:
        return session.get(name)
    except ValueNotFound as error:
        from ospbridge.toml.nearest import nearest

        hint = nearest(name, (entry.name for entry in session.values()), most=1) or error.hint
        raise ValueNotFound(error.message, hint=hint) from None


def _as_object(reading: ValueReading) -> dict[str, str]:
    return {"name": reading.name, "type": reading.type, "value": reading.value}


def _print_readings(readings: list[ValueReading]) -> None:
    print_table(
        (Column("NAME"), Column("TYPE"), Column("VALUE")), [(r.name, r.type, r.value) for r in readings]
    )


class TakesNegativeNumbers(click.Command):
    """A command whose last argument may be a number such as -1.5, which click would take for an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Move a negative number that belongs to no option to the end, behind `--`."""
        if "--" not in args:
            wants_value = {
                name
                for parameter in self.params
                if isinstance(parameter, click.Option) and not parameter.is_flag
                for name in parameter.opts
            }
            for at, arg in enumerate(args):
                if _NEGATIVE.fullmatch(arg) and (at == 0 or args[at - 1] not in wants_value):
                    args = [*args[:at], *args[at + 1 :], "--", arg]
                    break
        return super().parse_args(ctx, args)


_NEGATIVE = re.compile(r"-(\d|\.\d|inf|nan).*", re.IGNORECASE)


@values.command("set", cls=TakesNegativeNumbers)
@click.argument("name")
@click.argument("value")
@simulator_options
@json_option('Print {"name", "type", "value"} as read back.')
def set_(name: str, value: str, simulator: SimulatorAccess, as_json: bool) -> None:
    """Set a value, and show what the simulator made of it."""
    with simulator.session() as session:
        _get(session, name)
        session.set(name, value)
        reading = session.get(name)
    if as_json:
        print_json(_as_object(reading))
    else:
        _print_readings([reading])


@values.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--interval",
    type=NumberRange(0, LONGEST),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait between two looks.",
)
@click.option("--count", type=click.IntRange(1), metavar="N", help="Look that often, then end.")
@simulator_options
@json_option('Print lines of {"elapsed", "name", "type", "value"}; elapsed in seconds.')
def watch(
    names: tuple[str, ...], interval: float, count: int | None, simulator: SimulatorAccess, as_json: bool
) -> None:
    """Print values whenever they change, a line for each change.

    It misses values that change and change back between two looks. Ends after --count looks, or by Ctrl-C or SIGTERM
    with exit code 0.
    """
    with suppress(KeyboardInterrupt), stoppable(), simulator.session() as session:
        _watch(session, names, interval, count, as_json=as_json)


def _watch(
    session: BlockingSession, names: tuple[str, ...], interval: float, count: int | None, *, as_json: bool
) -> None:
    for name in names:
        _get(session, name)
    last: dict[str, str] = {}
    width = max(len(printable(name)) for name in names)
    started = time.monotonic()
    looks = 0
    while True:
        for name in names:
            reading = session.get(name)
            if last.get(name) == reading.value:
                continue
            last[name] = reading.value
            elapsed = time.monotonic() - started
            if as_json:
                print_json_line({"elapsed": round(elapsed, 3), **_as_object(reading)})
            else:
                say(f"{elapsed:10.3f}  {printable(name).ljust(width)}  {printable(reading.value)}")
        looks += 1
        if count is not None and looks >= count:
            return
        # Looks are due at equal distances; those that were missed are not made up.
        time.sleep(max(0.0, interval - (time.monotonic() - started) % interval) if interval else 0.0)
