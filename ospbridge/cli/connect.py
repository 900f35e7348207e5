"""``ospbridge connect``: the daemon between simulators and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.config import config_option
from ospbridge.cli.configured import configuration
from ospbridge.cli.joining import joining_options
from ospbridge.cli.options import log_options
from ospbridge.cli.upstream import upstream_options

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["connect"]


@click.command()
@config_option
@joining_options
@upstream_options
@log_options
@click.pass_context
def connect(
    context: click.Context, /, *, config: Path | None, log_level: str, log_json: bool | None, **_: Any
) -> None:
    """Run the daemon between a simulator and environments.

    It joins the simulator, takes its agents, and lets gymnasium.make("ospbridge/Agent-v0", agent=NAME) drive them
    from any process of this machine, and with --listen from other hosts. With --record it writes down what they play.
    With --config it reads a file, which may name several simulators. SIGTERM and Ctrl-C give the agents back and end it
    with exit code 0.
    """
    import trio

    from ospbridge.daemon.service import serve
    from ospbridge.observe import logs

    logs.configure(json=log_json, level=log_level)
    found = configuration(context, config)
    trio.run(serve, found.settings(), found.feedings())
