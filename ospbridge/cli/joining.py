"""The options of ``ospbridge connect`` that name a simulator and say how its agents are shared."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.completion import scenarios
from ospbridge.cli.launching import Launch, launch_from
from ospbridge.cli.options import (
    LONGEST,
    NumberRange,
    SimulatorAddress,
    limit_option,
    profile_option,
    trace_option,
    with_options,
)
from ospbridge.osp.timing import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ospbridge.cli.options import Decorator
    from ospbridge.daemon.settings import Settings
    from ospbridge.transport.tls import TlsAddress

__all__ = ["joining_options", "settings_from"]

LIMITS: Final = Limits()
MIB: Final = 1024 * 1024
PEM: Final = click.Path(path_type=Path)

_OPTIONS: Final[tuple[Decorator, ...]] = (
    click.option(
        "--simulator",
        type=SimulatorAddress(),
        metavar="HOST:PORT",
        default="127.0.0.1:45454",
        show_default=True,
        help="The simulator to join.",
    ),
    click.option(
        "--launch",
        type=Launch(),
        metavar="COMMAND",
        help="Start the simulator with this command, in which {port} stands for its port, again when it has ended, and "
        "end it with the daemon; `scenario` starts the scenario's own world. On a free port without --simulator.",
    ),
    profile_option("Which kind of OSP server it is; auto finds out."),
    click.option(
        "--agent",
        "agents",
        metavar="GLOB",
        multiple=True,
        help="Take the agents whose names fit; may be repeated. Default: all that are available.",
    ),
    click.option(
        "--scenario",
        metavar="FILE",
        shell_complete=scenarios,
        help="Agents that this scenario matches play its task; a TOML file, or the name of a shipped one.",
    ),
    click.option(
        "--hub",
        metavar="unix:PATH",
        help="Where environments attach. Default: hub.sock in $RUNTIME_DIRECTORY or $XDG_RUNTIME_DIR/ospbridge; "
        "hub-NAME.sock for a simulator with a name.",
    ),
    click.option(
        "--listen",
        metavar="HOST:PORT",
        help="Where environments of other hosts attach, by TCP with mutual TLS; needs the three files.",
    ),
    click.option(
        "--tls-cert", type=PEM, metavar="FILE", help="The daemon's certificate for --listen, as PEM."
    ),
    click.option("--tls-key", type=PEM, metavar="FILE", help="The key of that certificate, as PEM."),
    click.option(
        "--tls-ca",
        type=PEM,
        metavar="FILE",
        help="The CA that the environments' certificates must come from.",
    ),
    click.option(
        "--wait",
        type=NumberRange(0.0, 365 * LONGEST),
        metavar="SECONDS",
        help="How long to wait for an absent simulator or its agents; 0: try once. Default: for ever while it is "
        "absent or has no agents at all, but not for single agents that it lacks or that are taken.",
    ),
    click.option(
        "--force-restart",
        is_flag=True,
        help="Free wanted agents that other clients hold, and a world that waits for others, by disconnecting every "
        "client of the simulator: those that died, and those that live.",
    ),
    click.option(
        "--quorum",
        type=click.IntRange(1, 10_000),
        metavar="N",
        default=1,
        show_default=True,
        help="Hold the first reset until N environments wait for it.",
    ),
    click.option(
        "--reset-policy",
        type=click.Choice(["all", "any"]),
        default="all",
        show_default=True,
        help="Reset when all episodes are over, or end all with the first.",
    ),
    limit_option(
        "--step-timeout",
        LIMITS.step,
        "How long a step may take, and how long an environment may let others wait.",
    ),
    limit_option(
        "--reset-timeout",
        LIMITS.reset,
        "How long a reset may take, and how long an environment may wait for it.",
    ),
    limit_option(
        "--connect-timeout", LIMITS.connect, "How long a simulator may be silent in one try to join."
    ),
    click.option(
        "--memory-limit",
        type=click.IntRange(1, 65_536),
        metavar="MIB",
        default=LIMITS.memory // MIB,
        show_default=True,
        help="How much is kept of a simulator's names and types, in MiB.",
    ),
    click.option(
        "--spin/--no-spin",
        default=True,
        help="Poll for datagrams; --no-spin sleeps instead: slower steps, an idle processor.",
    ),
    trace_option("Write every datagram, decoded, to FILE."),
    click.option(
        "--record",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Write every episode that an environment plays to DIR, one file each, as it ends.",
    ),
)


def joining_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that adds them."""
    return with_options(command, _OPTIONS)


def settings_from(said: Mapping[str, Any]) -> Settings:
    """What the options say, of one simulator; ``name`` may be empty. Raises UsageError, ConfigurationError."""
    from ospbridge.daemon.lockstep import ResetPolicy
    from ospbridge.daemon.settings import Settings
    from ospbridge.task.loading import load
    from ospbridge.transport.unix import parse_unix

    scenario = None if said["scenario"] is None else load(said["scenario"])
    launch, simulator = launch_from(said["launch"], said["scenario"], said["address"])
    return Settings(
        name=said["name"],
        hub=parse_unix(said["hub"]),
        simulator=simulator,
        launch=launch,
        listen=_listening(said["listen"], said["tls_cert"], said["tls_key"], said["tls_ca"]),
        profile=said["profile"],
        agents=tuple(said["agents"]),
        limits=Limits(
            connect=said["connect_timeout"],
            step=said["step_timeout"],
            reset=said["reset_timeout"],
            memory=said["memory_limit"] * MIB,
        ),
        wait=said["wait"],
        force_restart=said["force_restart"],
        quorum=said["quorum"],
        reset_policy=ResetPolicy(said["reset_policy"]),
        spin=said["spin"],
        trace=said["trace"],
        record=said["record"],
        scenario=scenario,
        meant=() if scenario is None else tuple(table.match for table in scenario.agent),
    )


def _listening(listen: str | None, cert: Path | None, key: Path | None, ca: Path | None) -> TlsAddress | None:
    """Raises UsageError for certificates without an address, ConfigurationError for an address without them."""
    from ospbridge.errors import UsageError
    from ospbridge.transport.addresses import parse_endpoint
    from ospbridge.transport.tls import TlsAddress, TlsFiles

    if listen is None:
        if cert or key or ca:
            raise UsageError("certificates were given, but no --listen", hint="add --listen HOST:PORT")
        return None
    hint = "write HOST:PORT, for instance 0.0.0.0:45460"
    endpoint = parse_endpoint(listen, what="an address to listen at", hint=hint, default_port=None)
    return TlsAddress(endpoint, TlsFiles.of(cert, key, ca))
