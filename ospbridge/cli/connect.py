"""``ospbridge connect``: the daemon between a simulator and environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import LONGEST, SimulatorAddress, log_options
from ospbridge.cli.upstream import upstream_from, upstream_options

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint
    from ospbridge.transport.tls import TlsAddress

__all__ = ["connect"]

SECONDS = click.FloatRange(0.0, LONGEST, min_open=True)


@click.command()
@click.option(
    "--simulator",
    type=SimulatorAddress(),
    metavar="HOST:PORT",
    default="127.0.0.1:45454",
    show_default=True,
    help="The simulator to join.",
)
@click.option(
    "--profile",
    type=click.Choice(["auto", "document", "nerd"]),
    default="auto",
    show_default=True,
    help="Which kind of OSP server it is; auto finds out.",
)
@click.option(
    "--agent",
    "agents",
    metavar="GLOB",
    multiple=True,
    help="Take the agents whose names fit; may be repeated. Default: all that are available.",
)
@click.option(
    "--scenario",
    metavar="FILE",
    help="Agents that this scenario matches play its task; a TOML file, or the name of a shipped one.",
)
@click.option(
    "--hub",
    metavar="unix:PATH",
    help="Where environments attach. Default: hub.sock in $RUNTIME_DIRECTORY or $XDG_RUNTIME_DIR/ospbridge.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where environments of other hosts attach, by TCP with mutual TLS; needs the three files.",
)
@click.option("--tls-cert", metavar="FILE", help="The daemon's certificate for --listen, as PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of that certificate, as PEM.")
@click.option("--tls-ca", metavar="FILE", help="The CA that the environments' certificates must come from.")
@click.option(
    "--wait",
    type=click.FloatRange(0.0, 365 * LONGEST),
    metavar="SECONDS",
    help="How long the simulator may be absent. Default: for ever.",
)
@click.option(
    "--quorum",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=1,
    show_default=True,
    help="Hold the first reset until N environments wait for it.",
)
@click.option(
    "--reset-policy",
    type=click.Choice(["all", "any"]),
    default="all",
    show_default=True,
    help="Reset when all episodes are over, or end all with the first.",
)
@click.option(
    "--step-timeout",
    type=SECONDS,
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long a step may take, and how long an environment may let others wait.",
)
@click.option(
    "--reset-timeout",
    type=SECONDS,
    metavar="SECONDS",
    default=60.0,
    show_default=True,
    help="How long a reset may take, and how long an environment may wait for it.",
)
@click.option(
    "--connect-timeout",
    type=SECONDS,
    metavar="SECONDS",
    default=30.0,
    show_default=True,
    help="How long one try to join may meet silence.",
)
@click.option(
    "--no-spin", is_flag=True, help="Sleep whenever nothing has come: slower steps, an idle processor."
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write every datagram, decoded, to FILE.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write every episode that an environment plays to DIR, one file each, as it ends.",
)
@upstream_options
@log_options
def connect(  # noqa: PLR0917  # click passes options by name
    simulator: Endpoint,
    profile: str,
    agents: tuple[str, ...],
    scenario: str | None,
    hub: str | None,
    listen: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    wait: float | None,
    quorum: int,
    reset_policy: str,
    step_timeout: float,
    reset_timeout: float,
    connect_timeout: float,
    no_spin: bool,
    trace: Path | None,
    record: Path | None,
    log_level: str,
    log_json: bool | None,
    **upstream: Any,
) -> None:
    """Run the daemon between a simulator and environments.

    It joins the simulator, takes its agents, and lets gymnasium.make("ospbridge/Agent-v0", agent=NAME) drive them
    from any process of this machine, and with --listen from other hosts. With --record it writes down what they play.
    SIGTERM and Ctrl-C give the agents back and end it with exit code 0.
    """
    import trio

    from ospbridge.daemon.lockstep import ResetPolicy
    from ospbridge.daemon.service import serve
    from ospbridge.daemon.settings import Feeding, Settings
    from ospbridge.observe import logs
    from ospbridge.osp.timing import Limits
    from ospbridge.session.hub_client import default_hub
    from ospbridge.task.loading import load
    from ospbridge.task.making import task_maker
    from ospbridge.task.plain import PlainTask
    from ospbridge.transport.unix import parse_unix

    logs.configure(json=log_json, level=log_level)
    settings = Settings(
        hub=default_hub() if hub is None else parse_unix(hub),
        simulator=simulator,
        listen=_listening(listen, tls_cert, tls_key, tls_ca),
        profile=profile,
        agents=agents,
        limits=Limits(connect=connect_timeout, step=step_timeout, reset=reset_timeout),
        wait=wait,
        quorum=quorum,
        reset_policy=ResetPolicy(reset_policy),
        spin=not no_spin,
        trace=trace,
        record=record,
        make_task=PlainTask if scenario is None else task_maker(load(scenario)),
    )
    server = upstream_from(upstream)
    trio.run(serve, [settings], [] if server is None else [Feeding(server)])


def _listening(listen: str | None, cert: str | None, key: str | None, ca: str | None) -> TlsAddress | None:
    """Raises UsageError for certificates without an address, ConfigurationError for an address without them."""
    from ospbridge.errors import UsageError
    from ospbridge.transport.tls import TlsAddress, TlsFiles, parse_tls

    if listen is None:
        if cert or key or ca:
            raise UsageError("certificates were given, but no --listen", hint="add --listen HOST:PORT")
        return None
    return TlsAddress(parse_tls(f"tls://{listen}"), TlsFiles.of(cert, key, ca))
