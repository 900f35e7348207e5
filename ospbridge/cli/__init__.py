"""The `ospbridge` command: a table of commands, and what becomes of their errors.

Each command lives in a module that is imported only when the command is invoked or asked for its own help, so
`ospbridge --help` costs little more than importing click. This module must therefore not import trio, numpy,
gymnasium, nor any other room of the package than errors.
"""

from __future__ import annotations

import importlib
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from ospbridge import __version__
from ospbridge.cli.unwritten import unwritten_told
from ospbridge.cli.variables import name_variables, told_plainly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from click.shell_completion import CompletionItem

    from ospbridge.errors import OspBridgeError

__all__ = ["COMMANDS", "CommandPlace", "LazyGroup", "main"]

#: What the names of all variables begin with.
ENVIRONMENT_PREFIX = "OSPBRIDGE"
#: What a shell reports for a command that SIGINT ended.
EXIT_INTERRUPTED = 130


class CommandPlace(NamedTuple):
    """Where a command is found, and its one line in the list of commands.

    ``short_help`` repeats the first sentence of the command's own docstring; it stands here so that the list
    can be printed without importing the command.
    """

    module: str
    attribute: str
    short_help: str


COMMANDS: dict[str, CommandPlace] = {
    "demo": CommandPlace("ospbridge.cli.demo", "demo", "Show the bridge at work on a small robot world."),
    "agents": CommandPlace("ospbridge.cli.agents", "agents", "List the agents of a simulator."),
    "describe": CommandPlace(
        "ospbridge.cli.agents", "describe", "Show the inputs, outputs and infos of an agent."
    ),
    "values": CommandPlace(
        "ospbridge.cli.values", "values", "List, get, set and watch values of a simulator."
    ),
    "events": CommandPlace("ospbridge.cli.events", "events", "Watch events of a simulator."),
    "conformance": CommandPlace(
        "ospbridge.cli.conformance", "conformance", "Probe how a simulator speaks OSP."
    ),
    "check": CommandPlace("ospbridge.cli.check", "check", "Find the mistakes of a scenario."),
    "connect": CommandPlace(
        "ospbridge.cli.connect", "connect", "Run the daemon between a simulator and environments."
    ),
    "config": CommandPlace("ospbridge.cli.config", "config", "Show what `ospbridge connect` would do."),
    "status": CommandPlace("ospbridge.cli.status", "status", "Show what a running daemon does."),
    "top": CommandPlace(
        "ospbridge.cli.top", "top", "Watch a running daemon: simulators, agents, upstreams, live."
    ),
    "service": CommandPlace("ospbridge.cli.service", "service", "Make the daemon a service of systemd."),
    "sim": CommandPlace("ospbridge.cli.sim", "sim", "Run a simulator that speaks OSP."),
    "sink": CommandPlace(
        "ospbridge.cli.sink",
        "sink",
        "Run an RLlink server that records episodes and hands out a policy from a file.",
    ),
    "rllink": CommandPlace("ospbridge.cli.rllink", "rllink", "Look at RLlink servers."),
    "bench": CommandPlace("ospbridge.cli.bench", "bench", "Measure what the bridge costs."),
    "doctor": CommandPlace("ospbridge.cli.doctor", "doctor", "Find what keeps ospbridge from working here."),
    "tune": CommandPlace("ospbridge.cli.tune", "tune", "Cure a running simulator of stalls of 50 ms."),
    "trace": CommandPlace("ospbridge.cli.trace", "trace", "Read traces written with --trace."),
    "plot": CommandPlace("ospbridge.cli.plot", "plot", "Draw recorded episodes, or the times of a trace."),
    "export": CommandPlace("ospbridge.cli.export", "export", "Make a dataset of recorded episodes."),
    "completion": CommandPlace(
        "ospbridge.cli.completion", "completion", "Print what makes a shell complete the commands."
    ),
    "restart-communication": CommandPlace(
        "ospbridge.cli.restart",
        "restart_communication",
        "Disconnect every client of a simulator.",
    ),
}


class LazyGroup(click.Group):
    """A group of commands that are imported one by one, when needed."""

    def __init__(self, *args: Any, places: Mapping[str, CommandPlace], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places = dict(places)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program does."""
        with unwritten_told():
            return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Read the command line; an interruption is none of the user's mistakes, whose exit code click would give."""
        try:
            return super().make_context(*args, **kwargs)
        except KeyboardInterrupt:
            _exit_interrupted()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table: what to try first comes first."""
        return list(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None if there is no such name."""
        place = self.places.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place.module), place.attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{place.module}.{place.attribute} is {command!r}, not a click command")
        # The prefix does not depend on who asks: the daemon's options have one name wherever they are taken.
        name_variables(command, f"{ENVIRONMENT_PREFIX}_{cmd_name.replace('-', '_').upper()}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands from the table alone."""
        widest = max(map(len, self.places))
        with formatter.section("Commands"):
            for name, place in self.places.items():
                # As formatter.write_dl would, but that wraps what fits into its line too, which takes longer than all
                # the rest of the page.
                head = f"{'':{formatter.current_indent}}{name:{widest}}  "
                lines = [place.short_help]
                if len(head) + len(place.short_help) > formatter.width:
                    lines = textwrap.wrap(place.short_help, max(formatter.width - len(head), 10))
                formatter.write(head + f"\n{'':{len(head)}}".join(lines) + "\n")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete from the table alone: pressing tab must not import every command."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=place.short_help)
            for name, place in self.places.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run; a name that is almost right is answered with the right one."""
        name = args[0]
        if name not in self.places and not name.startswith("-") and not ctx.resilient_parsing:
            self._fail_on_unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _fail_on_unknown(self, ctx: click.Context, name: str) -> NoReturn:
        import difflib  # costs a fifth of what click costs

        message = f"No such command {name!r}."
        close = difflib.get_close_matches(name, self.places)
        if close:
            message += f" Did you mean {' or '.join(repr(match) for match in close)}?"
        raise click.UsageError(message, ctx)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and turn what the user can act on into an error, a hint and an exit code.

        Any other exception is a bug of ours, and keeps its traceback.
        """
        try:
            from ospbridge.cli.stopping import heeded
            from ospbridge.errors import OspBridgeError  # what only asks for help never gets here
        except KeyboardInterrupt:
            _exit_interrupted()

        try:
            with heeded():
                return super().invoke(ctx)
        except (KeyboardInterrupt, click.Abort):
            _exit_interrupted()
        except OspBridgeError as error:
            _exit_with(error)
        except click.BadParameter as error:
            raise told_plainly(error) from None
        except RuntimeError as error:
            # Python 3.11 makes one of whatever stops the making of a dataclass, as when a module is imported.
            if isinstance(error.__cause__, KeyboardInterrupt):
                _exit_interrupted()
            raise
        except BaseExceptionGroup as group:
            # trio's nurseries wrap even a single exception.
            leaves = list(_leaves(group))
            if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
                _exit_interrupted()
            errors = [leaf for leaf in leaves if isinstance(leaf, OspBridgeError)]
            if len(errors) < len(leaves):
                raise
            _exit_with(errors[0])


def _exit_with(error: OspBridgeError) -> NoReturn:
    first, *others = error.lines
    click.echo(f"Error: {_one_line(first)}", err=True)
    for other in others:
        click.echo(f"  {_one_line(other)}", err=True)
    if error.hint:
        click.echo(f"Hint: {_one_line(error.hint)}", err=True)
    raise click.exceptions.Exit(error.exit_code) from error


def _exit_interrupted() -> NoReturn:
    click.echo(err=True)  # ends the line on which the terminal shows ^C
    raise click.exceptions.Exit(EXIT_INTERRUPTED) from None


def _one_line(text: str) -> str:
    from ospbridge.text import LINE, printable  # only who fails needs it

    return printable(" ".join(text.split()), LINE)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for exception in group.exceptions:
        if isinstance(exception, BaseExceptionGroup):
            yield from _leaves(exception)
        else:
            yield exception


@click.group(
    cls=LazyGroup,
    places=COMMANDS,
    context_settings={
        "auto_envvar_prefix": ENVIRONMENT_PREFIX,
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.version_option(__version__, message="%(prog)s %(version)s")
def main() -> None:
    """Robot simulators that speak the ORCS Standard Protocol, as Gymnasium environments.

    Every option can also be set by an environment variable: OSPBRIDGE_, the command, the option, for instance
    OSPBRIDGE_AGENTS_SIMULATOR.
    """
