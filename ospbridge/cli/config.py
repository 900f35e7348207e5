"""``ospbridge config``: what the daemon would do, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ospbridge.cli.configured import configuration
from ospbridge.cli.dashboard import dashboard_options
from ospbridge.cli.joining import joining_options
from ospbridge.cli.options import CloseNames
from ospbridge.cli.serving import serving_options
from ospbridge.cli.upstream import upstream_options

__all__ = ["config", "config_option"]


def config_option(command: Any) -> Any:
    """Add ``--config FILE``."""
    return click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read all other settings from FILE, a TOML file; it may name several simulators and RLlink servers.",
    )(command)


@click.group(cls=CloseNames)
def config() -> None:
    """Show what `ospbridge connect` would do."""


@config.command(context_settings={"auto_envvar_prefix": "OSPBRIDGE_CONNECT"})
@config_option
@click.option("--origin", is_flag=True, help="Say behind each value where it is from.")
@joining_options
@upstream_options
@serving_options
@dashboard_options
@click.pass_context
def show(context: click.Context, /, *, config: Path | None, origin: bool, **_: Any) -> None:
    """Print the configuration that results, as a configuration file.

    It takes the options of `ospbridge connect` and its environment variables, OSPBRIDGE_CONNECT_ and the option: flags
    come before variables, variables before the file, the file before defaults.
    """
    from ospbridge.config.effective import shown

    found = configuration(context, config)
    # What cannot work is told as it would be when the daemon starts.
    found.check()
    click.echo(shown(found.entries, origins=origin), nl=False)
