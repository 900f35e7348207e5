"""The environment variables of options: OSPBRIDGE_, the command, and the option as it is written.

Left alone, click names them after the parameter of the function behind a command, which users never see: `--json` would
be AS_JSON. Nor does it say of a value that cannot be read that it came from a variable, or which. This module knows
no command; it is imported with every one, and must stay as light as click.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["name_variables", "told_plainly", "variable_read", "variables_of"]

#: What click says of a value that is no number, and what is meant.
_PLAINLY: Final[Mapping[str, str]] = {
    "is not a valid integer range.": "is not a whole number.",
    "is not a valid integer.": "is not a whole number.",
    "is not a valid float range.": "is not a number.",
    "is not a valid float.": "is not a number.",
}


def name_variables(command: click.Command, prefix: str) -> None:
    """Give each option of a command, and of those in it, the variable that its longest spelling makes."""
    prefix = command.context_settings.get("auto_envvar_prefix", prefix)
    for option in command.params:
        if isinstance(option, click.Option) and option.allow_from_autoenv and option.envvar is None:
            option.envvar = f"{prefix}_{_constant(max(option.opts, key=len).lstrip('-'))}"
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            name_variables(each, f"{prefix}_{_constant(name)}")


def variable_read(option: click.Parameter, context: click.Context) -> str | None:
    """The variable that an option has its value from; None where it has it from elsewhere."""
    if context.get_parameter_source(option.name or "") is not ParameterSource.ENVIRONMENT:
        return None
    if isinstance(option.envvar, str) and os.environ.get(option.envvar):
        return option.envvar
    return f"{context.auto_envvar_prefix}_{(option.name or '').upper()}"  # as click falls back on


def told_plainly(error: click.BadParameter) -> click.BadParameter:
    """The error of a bad value, with the variable that it is from, and which kind of value was expected."""
    if type(error) is not click.BadParameter:
        return error  # what is missing is no value
    message = error.message
    for said, meant in _PLAINLY.items():
        if message.endswith(said):
            limits = getattr(getattr(error.param, "type", None), "_describe_range", None)
            expected = f"{meant.removesuffix('.')} in the range {limits()}." if limits is not None else meant
            message = message.removesuffix(said) + expected
    value, found, _ = message.partition(" is not a valid boolean.")
    if found:
        message = f"{value} says neither yes nor no; write 1 or 0."
    hint = error.param_hint
    if hint is None and error.param is not None and error.ctx is not None:
        variable = variable_read(error.param, error.ctx)
        hint = f"{error.param.get_error_hint(error.ctx)}, which {variable} says" if variable else None
    return click.BadParameter(message, error.ctx, error.param, hint)


def variables_of(command: click.Command, context: click.Context) -> Iterator[str]:
    """All that a command, and those in it, read options from. A group that imports its commands imports them all."""
    for option in command.params:
        if isinstance(option, click.Option) and isinstance(option.envvar, str):
            yield option.envvar
            yield f"{context.auto_envvar_prefix}_{(option.name or '').upper()}"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            if each is not None:
                within = click.Context(each, parent=context, info_name=name, **each.context_settings)
                yield from variables_of(each, within)


def _constant(name: str) -> str:
    return name.replace("-", "_").upper()
