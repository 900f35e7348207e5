"""``ospbridge connect``: the daemon between simulators and environments."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.config import config_option
from ospbridge.cli.configured import configuration
from ospbridge.cli.dashboard import dashboard, dashboard_options
from ospbridge.cli.joining import joining_options
from ospbridge.cli.serving import allow_many, collect_seldom, serving_options
from ospbridge.cli.stopping import run_until_asked
from ospbridge.cli.upstream import upstream_options

if TYPE_CHECKING:
    from pathlib import Path

    from ospbridge.config.effective import Entry
    from ospbridge.daemon.service import Companion
    from ospbridge.observe.recent import Recent

__all__ = ["connect"]


@click.command()
@config_option
@joining_options
@upstream_options
@serving_options
@dashboard_options
@click.pass_context
def connect(context: click.Context, /, *, config: Path | None, **_: Any) -> None:
    """Run the daemon between a simulator and environments.

    It joins the simulator, takes its agents, and lets gymnasium.make("ospbridge/Agent-v0", agent=NAME) drive them
    from any process of this machine, and with --listen from other hosts. With --record it records their episodes. With
    --config it reads a file, which may name several simulators. On SIGTERM and Ctrl-C it gives the agents back and ends
    with exit code 0; on SIGHUP it reads the file and certificates again.
    """
    from functools import partial

    from ospbridge.cli.reloading import reloader
    from ospbridge.daemon.service import serve
    from ospbridge.observe import logs

    found = configuration(context, config)
    with found.daemon.blamed():
        found.check_dashboard()
    recent = None
    if found.daemon["dashboard"] is not None:
        from ospbridge.observe.recent import Recent

        recent = Recent()
    logs.configure(json=found.daemon["log_json"], level=found.daemon["log_level"], recent=recent)
    run = partial(
        serve,
        found.settings(),
        found.feedings(),
        companions=_companions(found.daemon, recent),
        reload=reloader(context, config, found, recent),
    )
    allow_many()
    collect_seldom()
    run_until_asked(run, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _companions(daemon: Entry, recent: Recent | None) -> list[Companion]:
    """What else runs beside the hub."""
    companions: list[Companion] = []
    if recent is not None:
        with daemon.blamed():
            companions.append(
                dashboard(
                    daemon["dashboard"],
                    recent,
                    token=daemon["dashboard_token"],
                    names=daemon["dashboard_host"] or (),
                )
            )
    if daemon["metrics"] is not None:
        from ospbridge.daemon.metrics_server import metrics_server

        with daemon.blamed():
            companions.append(metrics_server(daemon["metrics"]))
    return companions
