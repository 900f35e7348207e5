"""The options of ``ospbridge connect`` that name an RLlink server and say what to do for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.options import LONGEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ospbridge.daemon.relay.settings import Upstream

__all__ = ["upstream_from", "upstream_options"]

PREFIX: Final = "rllink_"
_OPTIONS: Final = (
    click.option(
        "--rllink",
        metavar="[tls://]HOST:PORT",
        help="An RLlink server, such as RLlib, that learns from the agents' experience.",
    ),
    click.option(
        "--rllink-mode",
        type=click.Choice(["drive"]),
        default="drive",
        show_default=True,
        help="Let the server's policy act for the agents, and learn from that.",
    ),
    click.option(
        "--rllink-dialect",
        type=click.Choice(["auto", "json", "msgpack"]),
        default="auto",
        show_default=True,
        help="How it speaks RLlink: json as Ray 2.47 and 2.48, msgpack as Ray 2.49 and later; auto finds out.",
    ),
    click.option(
        "--rllink-agents",
        metavar="GLOB",
        multiple=True,
        help="The agents whose names fit; may be repeated. Default: all of the daemon.",
    ),
    click.option(
        "--rllink-env-steps",
        type=click.IntRange(1, 10_000_000),
        metavar="N",
        help="Steps of a batch: the server's train batch size, shared among its env runners. "
        "Default: as the server tells, or RLlib's 4000.",
    ),
    click.option(
        "--rllink-activation",
        metavar="NAME",
        help="The activation of the policy's layers (fcnet_activation). Default: RLlib's tanh.",
    ),
    click.option(
        "--rllink-read-pickle",
        is_flag=True,
        help="Read both from the pickle that newer servers send, without executing any of it.",
    ),
    click.option(
        "--rllink-batch-mode",
        type=click.Choice(["truncate_episodes", "complete_episodes"]),
        help="Whether a batch may end in mid-episode. Default: it may where the dialect can continue episodes.",
    ),
    click.option(
        "--rllink-greedy", is_flag=True, help="Take the most probable action instead of drawing one."
    ),
    click.option(
        "--rllink-timeout",
        type=click.FloatRange(0.0, LONGEST, min_open=True),
        metavar="SECONDS",
        default=600.0,
        show_default=True,
        help="How long new weights may take; the agents rest afterwards.",
    ),
    click.option(
        "--rllink-away",
        type=click.Choice(["hold", "continue"]),
        default="hold",
        show_default=True,
        help="While the server is away: let the world wait, or act on with the latest policy.",
    ),
    click.option(
        "--rllink-seed",
        type=click.IntRange(1, 2**31 - 1),
        metavar="SEED",
        help="Of actions and the first reset.",
    ),
    click.option(
        "--rllink-tls-ca",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The CA that the server's certificate must come from. Default: those of the system.",
    ),
    click.option(
        "--rllink-tls-cert",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Our certificate, if it asks.",
    ),
    click.option(
        "--rllink-tls-key",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The key of that certificate.",
    ),
    click.option("--insecure", is_flag=True, help="Speak RLlink with other hosts even without TLS."),
)


def upstream_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that adds them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def upstream_from(options: Mapping[str, Any]) -> Upstream | None:
    """What the options say; None where no server is named. Raises UsageError, ConfigurationError."""
    from ospbridge.daemon.relay.settings import Mode, Upstream, WhileAway
    from ospbridge.errors import UsageError
    from ospbridge.policy.activations import activation
    from ospbridge.rllink.cutting import BatchMode
    from ospbridge.rllink.dialects import dialect_named
    from ospbridge.rllink.timing import Limits
    from ospbridge.transport.streams import ServerTls, parse_stream

    address = options["rllink"]
    if address is None:
        named = [name for name, value in options.items() if name.startswith(PREFIX) and _said(name)]
        if named:
            raise UsageError(
                f"--{named[0].replace('_', '-')} was given, but no server", hint="add --rllink HOST:PORT"
            )
        return None
    said = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    files = (said["tls_ca"], said["tls_cert"], said["tls_key"])
    if said["activation"] is not None:
        activation(said["activation"])
    return Upstream(
        address=parse_stream(
            address, tls=ServerTls(*files) if any(files) else None, insecure=options["insecure"]
        ),
        mode=Mode(said["mode"]),
        dialect=dialect_named(said["dialect"]),
        agents=said["agents"],
        env_steps=said["env_steps"],
        activation=said["activation"],
        read_pickle=said["read_pickle"],
        batch_mode=None if said["batch_mode"] is None else BatchMode(said["batch_mode"]),
        explore=not said["greedy"],
        away=WhileAway(said["away"]),
        hold=said["timeout"],
        limits=Limits(state=said["timeout"]),
        seed=said["seed"],
    )


def _said(name: str) -> bool:
    """Whether the user gave an option."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE
