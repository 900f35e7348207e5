"""``ospbridge service``: the daemon as a service of systemd."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import CloseNames, json_option
from ospbridge.cli.output import note, print_json, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ospbridge.service.installing import Installation, Step
    from ospbridge.service.systemctl import UnitStatus

__all__ = ["service"]

_WHOSE = click.option(
    "--user/--system",
    "user",
    default=False,
    help="A service of this user's, or one of the system, which is the default and needs root.",
)
_INSTANCE = click.option(
    "--instance",
    metavar="NAME",
    help="One of several daemons: ospbridge@NAME, with the configuration NAME.toml.",
)
_FORCE = click.option("--force", is_flag=True, help="Even where somebody has changed the files.")
_DRY_RUN = click.option("--dry-run", is_flag=True, help="Only print what would be written and run.")


@click.group(cls=CloseNames)
def service() -> None:
    """Make the daemon a service of systemd."""


@service.command()
@_WHOSE
@_INSTANCE
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Its configuration. Default: ospbridge.toml in /etc/ospbridge, or in ~/.config/ospbridge with --user; an "
    "example is written where there is none.",
)
@click.option("--now", is_flag=True, help="Start it at once, or restart it where something is new.")
@_FORCE
@_DRY_RUN
def install(
    *, user: bool, instance: str | None, config: Path | None, now: bool, force: bool, dry_run: bool
) -> None:
    """Write the unit and an example of a configuration, and let it start at boot.

    The unit runs this installation of ospbridge. The user of a system service exists only while it runs, and members of
    the group ospbridge may attach. Files that somebody has changed are overwritten only with --force, and the
    configuration never.
    """
    from ospbridge.errors import ConfigurationError
    from ospbridge.service.systemctl import check_manager, check_permission

    if config is not None:
        try:
            there = config.is_file()
        except OSError:
            there = False  # such as a name that is too long for any file
        if not there:
            raise ConfigurationError(f"{config} is not there", hint="write it, or leave --config out")
    wanted = _installation(user, instance, config)
    wanted.check_visible()
    if not dry_run:
        check_permission(wanted.scope)
        check_manager(wanted.scope)
        wanted.check_alone()
    steps = wanted.install_steps(now=now, force=force)
    if dry_run:
        _show(steps)
        return
    _carry_out(wanted, steps)
    if wanted.running():
        if not now and any(step.file is not None for step in steps):
            note(f"it still runs as before: {' '.join(wanted.scope.systemctl)} restart {wanted.unit}")
    elif not now:
        note(f"look at {wanted.configuration}, then: {' '.join(wanted.scope.systemctl)} start {wanted.unit}")


@service.command()
@_WHOSE
@_INSTANCE
@_FORCE
@_DRY_RUN
def uninstall(*, user: bool, instance: str | None, force: bool, dry_run: bool) -> None:
    """Stop the service and take its files away.

    The configuration, what was recorded and spooled, and the group stay.
    """
    from ospbridge.service.systemctl import check_manager, check_permission

    wanted = _installation(user, instance, None)
    if not dry_run:
        check_permission(wanted.scope)
        check_manager(wanted.scope)
    steps = wanted.uninstall_steps(force=force)
    if dry_run:
        _show(steps)
        return
    if not steps:
        note(f"{wanted.unit} is not installed")
        return
    _carry_out(wanted, steps)
    note(f"{wanted.configuration} stays")


@service.command()
@_WHOSE
@_INSTANCE
@json_option("Print one JSON object.")
def status(*, user: bool, instance: str | None, as_json: bool) -> None:
    """Show what systemd knows of the service.

    The exit code is 0 where it runs, else 69. What the daemon itself does is shown by `ospbridge status`.
    """
    from dataclasses import asdict

    from ospbridge.errors import ServiceManagerError
    from ospbridge.service.installing import unit_of
    from ospbridge.service.scope import Scope
    from ospbridge.service.systemctl import check_manager, unit_status

    scope = Scope(user)
    unit = unit_of(instance)
    check_manager(scope)
    found = unit_status(scope, unit)
    if as_json:
        print_json(asdict(found))
    else:
        _tell(found)
    if not found.loaded:
        raise ServiceManagerError(f"{unit} is not installed", hint="`ospbridge service install` makes it")
    if found.state not in ("active", "reloading"):
        raise ServiceManagerError(
            f"{unit} does not run: it is {found.state}" + f" ({found.result})" * (found.result != "success"),
            hint=f"`{scope.journalctl} --unit {unit}` says why",
        )


def _installation(user: bool, instance: str | None, config: Path | None) -> Installation:
    from ospbridge.service.installing import Installation, unit_of
    from ospbridge.service.scope import Scope

    unit_of(instance)
    return Installation(Scope(user), instance, config)


def _show(steps: Sequence[Step]) -> None:
    for step in steps:
        click.echo(step)
        if step.file is not None and not step.removed:
            for line in step.file.content.splitlines():
                click.echo(f"    {line}".rstrip())


def _carry_out(wanted: Installation, steps: Sequence[Step]) -> None:
    wanted.carry_out(steps)
    for step in steps:
        click.echo(step)


def _tell(found: UnitStatus) -> None:
    rows: list[tuple[str, Any]] = [
        ("unit", f"{found.unit}: {found.state} ({found.detail})"),
        ("since", found.since),
        ("at boot", found.enabled),
        ("says", found.text),
        ("process", "" if found.pid is None else f"{found.pid}"),
        ("restarts", f"{found.restarts} by itself"),
        ("watchdog", f"{found.watchdog}, last heard {found.heard}" if found.watchdog and found.heard else ""),
        ("last exit", _last_exit(found)),
    ]
    for name, told in rows:
        if told:
            say(f"{name:10}{told}")


def _last_exit(found: UnitStatus) -> str:
    if found.signal is not None:
        return f"by signal {found.signal}, {found.ended}"
    return "" if found.exit_code is None else f"exit code {found.exit_code}, {found.ended}"
