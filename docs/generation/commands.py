"""The page of every command, from click itself."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

import ospbridge
from docs.generation.markdown import escaped, table
from ospbridge.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ENVIRONMENT", "page", "variables_read", "walk"]

ENVIRONMENT: Final = {
    "RUNTIME_DIRECTORY": "the directory of hubs and leases, which systemd sets; it counts before `XDG_RUNTIME_DIR`",
    "XDG_RUNTIME_DIR": "hubs and leases are in its folder `ospbridge`; without it, or if relative, in "
    "one below `/tmp` that is this user's own",
    "STATE_DIRECTORY": "the directory of spools, which systemd sets; it counts before `XDG_STATE_HOME`",
    "XDG_STATE_HOME": "spools are in its folder `ospbridge`; without it, or if relative, in `~/.local/state/ospbridge`",
    "XDG_CONFIG_HOME": "where `ospbridge service --user` puts units; without it, or if relative, `~/.config`",
    "COLUMNS": "the width of the terminal, if the terminal does not tell it",
    "CREDENTIALS_DIRECTORY": "where systemd puts credentials, such as the dashboard's token",
    "JOURNAL_STREAM": "set by systemd: lines of the log have a priority, and no time of their own",
    "NOTIFY_SOCKET": "set by systemd: where the daemon reports that it is ready, and how it is",
    "WATCHDOG_USEC": "set by systemd: how often the daemon must report that it is alive",
    "WATCHDOG_PID": "set by systemd: which process must report it",
    "NO_COLOR": "if set to anything, output and logs have no colours",
}
"""The variables that are read by their own name, whatever the command."""
_READING: Final = ("os.environ.get", "os.environ.pop", "os.getenv", "variables.get", "variables.pop")

TOP: Final = """\
# Every command and option

<!-- `python -m docs.generate` writes this page; change the commands' own help instead. -->

This page lists every command with its options, as `--help` (`-h`) prints them. You can also set an option by the
environment variable beside it; the command line takes precedence. In the variable of an option that may be repeated,
separate the values by spaces; write a switch as `1` or `0`. [Exit codes](exit-codes.md) explains what commands end
with, and [Let your shell complete commands](../how-to/shell-completion.md) how to complete them with Tab.
"""


def walk(
    command: click.Command = main, name: str = "ospbridge", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command and group with its path and a context, groups before what is in them."""
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            if not found.hidden:
                yield from walk(found, each, context)


def page(there: str) -> str:  # noqa: ARG001  # nothing of it is kept
    """The whole page."""
    parts = [TOP]
    for path, command, context in walk():
        parts.append(_command(path, command, context))
    rows = [(f"`{name}`", meaning) for name, meaning in ENVIRONMENT.items()]
    parts.append(f"## Other environment variables\n\n{table(('variable', 'meaning'), rows)}\n")
    return "\n".join(parts)


def _command(path: str, command: click.Command, context: click.Context) -> str:
    depth = min(2 + path.count(" ") - (path != "ospbridge"), 3)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    parts = [f"{'#' * depth} {path}\n", f"```text\n{usage}\n```\n"]
    help_text = (command.help or "").partition("\f")[0]
    parts += [_paragraph(text) + "\n" for text in help_text.split("\n\n") if text.strip()]
    arguments = [each for each in command.params if isinstance(each, click.Argument)]
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden and each.name != "version"
    ]
    if arguments:
        rows = [
            (f"`{each.make_metavar(context)}`", "needed" if each.required else "may be left out", _kind(each))
            for each in arguments
        ]
        parts.append(table(("argument", "", "takes"), rows) + "\n")
    if options:
        option_rows = [
            (_names(each, context), _default(each, context), _variable(each, context), _meaning(each))
            for each in options
        ]
        parts.append(table(("option", "default", "variable", "meaning"), option_rows) + "\n")
    return "\n".join(parts)


def _paragraph(text: str) -> str:
    if text.lstrip().startswith("\b"):
        return "```text\n" + text.strip().removeprefix("\b").strip("\n") + "\n```"
    return escaped(text)


def _names(option: click.Option, context: click.Context) -> str:
    words = [*option.opts, *option.secondary_opts]
    value = (
        "" if option.is_flag or option.count else f" {option.make_metavar(context)}".removesuffix(" RANGE")
    )
    return "`" + ", ".join(words) + value + "`"


def _default(option: click.Option, context: click.Context) -> str:
    """What counts where nothing is said; nothing where the meaning tells it."""
    value: Any = option.get_default(context, call=False)
    if value is None or "UNSET" in repr(value) or value in ((), False):
        return "needed" if option.required else ""
    if value is True:
        return f"`{option.opts[0]}`"
    if isinstance(value, tuple):
        return f"`{', '.join(map(str, value))}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _variable(option: click.Option, context: click.Context) -> str:
    """As click makes it up where none is said."""
    if option.envvar:
        return f"`{option.envvar}`"
    if not option.allow_from_autoenv or not context.auto_envvar_prefix:
        return ""
    return f"`{context.auto_envvar_prefix}_{(option.name or '').upper()}`"


def _meaning(option: click.Option) -> str:
    parts = [escaped(option.help or "")]
    limits = _kind(option) if isinstance(option.type, click.IntRange | click.FloatRange) else ""
    if limits:
        parts.append(f"{limits[0].upper()}{limits[1:]}.")
    if option.multiple and "repeated" not in parts[0]:
        parts.append("May be repeated.")
    return " ".join(parts)


def _number(value: float) -> str:
    return f"{value:,}".removesuffix(".0")


def _kind(parameter: click.Parameter) -> str:
    """What values there are."""
    kind = parameter.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        least = "" if kind.min is None else f"{'above' if kind.min_open else 'from'} {_number(kind.min)}"
        most = "" if kind.max is None else f"{'below' if kind.max_open else 'up to'} {_number(kind.max)}"
        return " ".join(part for part in (least, most) if part)
    if isinstance(kind, click.Choice):
        return " or ".join(f"`{choice}`" for choice in kind.choices)
    words = {"text": "text", "path": "a path", "file": "a path", "directory": "a path", "integer": "a number"}
    kind_name = words.get(kind.name, f"`{kind.name}`")
    return f"one or more of: {kind_name}" if parameter.nargs == -1 else kind_name


def variables_read() -> set[str]:
    """The variables that the code asks the environment for by their own name."""
    found = set()
    for path in Path(ospbridge.__path__[0]).rglob("*.py"):
        text = path.read_text("utf-8")
        if "environ" not in text and "variables" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            names: list[ast.expr] = []
            if isinstance(node, ast.Call) and ast.unparse(node.func) in _READING:
                names = node.args[:1]
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
                names = [node.slice]
            elif isinstance(node, ast.Compare) and ast.unparse(node.comparators[0]) == "os.environ":
                names = [node.left]
            found |= {
                name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)
            }
    return found
