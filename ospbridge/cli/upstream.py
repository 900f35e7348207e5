"""The options of ``ospbridge connect`` that name an RLlink server and say what to do for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from ospbridge.cli.options import limit_option, with_options
from ospbridge.cli.server_options import (
    SizeParam,
    dialect_option,
    largest_option,
    server_address,
    tls_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ospbridge.cli.options import Decorator
    from ospbridge.daemon.relay.link import Upstream

__all__ = ["upstream_from", "upstream_options"]

PREFIX: Final = "rllink_"
OF_MODE: Final = {
    "drive": (
        "env_steps",
        "activation",
        "head_activation",
        "normalize_actions",
        "clip_actions",
        "batch_mode",
        "greedy",
        "timeout",
        "away",
        "seed",
        "play_anyway",
    ),
    "observe": ("unannotated", "spool", "spool_limit", "spool_full"),
}
"""Options that mean something in one mode only."""
LEARNING: Final = 1800.0
"""Seconds for which a server may go on learning when the world is not held for it any more, before it is given up."""


_OPTIONS: Final[tuple[Decorator, ...]] = (
    click.option(
        "--rllink",
        metavar="[tls://]HOST:PORT",
        help="An RLlink server, such as RLlib, that learns from the agents' experience.",
    ),
    click.option(
        "--rllink-mode",
        type=click.Choice(["drive", "observe"]),
        default="drive",
        show_default=True,
        help="drive: the server's policy acts for the agents; observe: it gets the experience of environments.",
    ),
    dialect_option("rllink-"),
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
        "--rllink-head-activation",
        metavar="NAME",
        help="The activation of the head's hidden layers, if any (head_fcnet_activation). Default: RLlib's relu.",
    ),
    click.option(
        "--rllink-normalize-actions/--no-rllink-normalize-actions",
        default=None,
        help="Whether the policy acts within [-1, 1], which is stretched to the action space. Default: as RLlib, yes.",
    ),
    click.option(
        "--rllink-clip-actions/--no-rllink-clip-actions",
        default=None,
        help="Whether actions that are not stretched are clipped to the action space. Default: as RLlib, no.",
    ),
    click.option(
        "--rllink-read-pickle/--no-rllink-read-pickle",
        default=True,
        show_default=True,
        help="Whether to read these, the spaces, the module and its connectors from the pickle that newer servers "
        "send, without executing any of it.",
    ),
    click.option(
        "--rllink-play-anyway",
        is_flag=True,
        help="Act for a server whose module, connectors or activations are not those that are played here.",
    ),
    click.option(
        "--rllink-batch-mode",
        type=click.Choice(["truncate_episodes", "complete_episodes"]),
        help="Whether a batch may end in mid-episode. Default: it may where the dialect can continue episodes.",
    ),
    click.option(
        "--rllink-greedy", is_flag=True, help="Take the most probable action instead of drawing one."
    ),
    limit_option("--rllink-timeout", 600.0, "How long new weights may take; the agents rest afterwards."),
    click.option(
        "--rllink-away",
        type=click.Choice(["hold", "continue"]),
        default="hold",
        show_default=True,
        help="While the server is away: let the world wait, or go on with the latest policy.",
    ),
    click.option(
        "--rllink-seed",
        type=click.IntRange(1, 2**31 - 1),
        metavar="SEED",
        help="Of actions and the first reset.",
    ),
    click.option(
        "--rllink-unannotated",
        is_flag=True,
        help="Send episodes of environments that give no action_logp as well: only `ospbridge sink` and servers of "
        "your own take them.",
    ),
    click.option(
        "--rllink-spool",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Where observed episodes wait until they have arrived. Default: a file for each server, in "
        "$STATE_DIRECTORY or $XDG_STATE_HOME/ospbridge.",
    ),
    click.option(
        "--rllink-spool-limit",
        type=SizeParam(),
        metavar="SIZE",
        default="2G",
        show_default=True,
        help="How much may wait there, for instance 500M.",
    ),
    click.option(
        "--rllink-spool-full",
        type=click.Choice(["drop-oldest", "drop-newest"]),
        default="drop-oldest",
        show_default=True,
        help="Which episodes are dropped when the spool is full.",
    ),
    largest_option("rllink-"),
    click.option(
        "--rllink-most-arrays",
        type=click.IntRange(1, 1_000_000),
        metavar="N",
        default=1000,
        show_default=True,
        help="Take no weights of more arrays.",
    ),
    click.option(
        "--rllink-most-work",
        type=click.IntRange(1, 10**15),
        metavar="N",
        default=1_000_000_000,
        show_default=True,
        help="Take no ONNX model that may need more multiplications for a decision.",
    ),
    *tls_options("rllink-"),
)


def upstream_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that adds them."""
    return with_options(command, _OPTIONS)


def upstream_from(
    options: Mapping[str, Any], *, given: Callable[[str], bool] | None = None
) -> Upstream | None:
    """What the options say; None where no server is named. Raises UsageError, ConfigurationError.

    ``given`` tells of an option whether the user gave it; by default, on the command line.
    """
    from ospbridge.daemon.relay.link import Mode, Upstream, WhileAway
    from ospbridge.errors import UsageError
    from ospbridge.record.spool import WhenFull
    from ospbridge.rllink.batches import BatchMode
    from ospbridge.rllink.connecting import Limits
    from ospbridge.rllink.dialects import dialect_named

    address = options["rllink"]
    given = given or _said
    if address is None:
        named = [name for name in options if (name.startswith(PREFIX) or name == "insecure") and given(name)]
        if named:
            raise UsageError(
                f"--{named[0].replace('_', '-')} was given, but no server", hint="add --rllink HOST:PORT"
            )
        return None
    said = {name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)}
    _check(said, given)
    return Upstream(
        address=server_address(
            address,
            ca=said["tls_ca"],
            cert=said["tls_cert"],
            key=said["tls_key"],
            insecure=options["insecure"],
        ),
        mode=Mode(said["mode"]),
        dialect=dialect_named(said["dialect"]),
        agents=said["agents"],
        env_steps=said["env_steps"],
        activation=said["activation"],
        head_activation=said["head_activation"],
        normalize_actions=said["normalize_actions"],
        clip_actions=said["clip_actions"],
        read_pickle=said["read_pickle"],
        play_anyway=said["play_anyway"],
        batch_mode=None if said["batch_mode"] is None else BatchMode(said["batch_mode"]),
        explore=not said["greedy"],
        away=WhileAway(said["away"]),
        hold=said["timeout"],
        # The world is let go, but not the server: weights that come later have been learned all the same.
        limits=Limits(state=said["timeout"] + LEARNING),
        seed=said["seed"],
        unannotated=said["unannotated"],
        spool=said["spool"],
        spool_limit=said["spool_limit"],
        spool_full=WhenFull(said["spool_full"]),
        largest_message=said["largest_message"],
        most_arrays=said["most_arrays"],
        most_work=said["most_work"],
    )


def _check(said: Mapping[str, Any], given: Callable[[str], bool]) -> None:
    """Raises UsageError for what means nothing beside the rest, ConfigurationError for no activation."""
    from ospbridge.errors import UsageError
    from ospbridge.policy.rlmodule import named_activation

    for mode, names in OF_MODE.items():
        for name in names if mode != said["mode"] else ():
            if given(PREFIX + name):
                raise UsageError(
                    f"--rllink-{name.replace('_', '-')} means nothing in the mode {said['mode']}",
                    hint=f"leave it out, or say --rllink-mode {mode}",
                )
    if said["unannotated"] and said["read_pickle"] and given(f"{PREFIX}read_pickle"):
        raise UsageError(
            "--rllink-read-pickle means nothing with --rllink-unannotated, which asks the server nothing",
            hint="leave one of them out",
        )
    for name in ("activation", "head_activation"):
        if said[name] is not None:
            named_activation(said[name])


def _said(name: str) -> bool:
    """Whether the user gave an option."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE
