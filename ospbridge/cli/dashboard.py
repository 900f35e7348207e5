"""The options of ``ospbridge connect`` that open its dashboard, and what runs it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.options import with_options
from ospbridge.cli.serving import ListeningAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ospbridge.cli.options import Decorator
    from ospbridge.daemon.notifying import Overlook
    from ospbridge.daemon.service import Companion
    from ospbridge.interface import Endpoint
    from ospbridge.observe.recent import Recent

__all__ = ["DASHBOARD_OPTIONS", "dashboard", "dashboard_options"]

DASHBOARD_OPTIONS: Final[tuple[Decorator, ...]] = (
    click.option(
        "--dashboard",
        type=ListeningAddress(),
        metavar="[HOST:]PORT",
        help="Show what the daemon does at http://HOST:PORT/. Default host: 127.0.0.1; others need a token.",
    ),
    click.option(
        "--dashboard-token",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The token in FILE is asked for. Default: the credential dashboard-token, where systemd gives one.",
    ),
    click.option(
        "--dashboard-host",
        metavar="NAME",
        multiple=True,
        help="Another name that browsers call it by, such as a proxy's; may be repeated.",
    ),
)


def dashboard_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator that adds them."""
    return with_options(command, DASHBOARD_OPTIONS)


def dashboard(
    address: Endpoint, recent: Recent, *, token: Path | None = None, names: Sequence[str] = ()
) -> Companion:
    """What serves it beside the hub. It listens at once.

    Raises ConfigurationError without the extra, for an address that is taken or needs a token, for an unfit token,
    and for a name that is none.
    """
    from ospbridge.dashboard.address import Access, called, read_token
    from ospbridge.dashboard.serving import Dashboard

    access = Access(token=read_token(token), names=tuple(map(called, names)))
    opened = Dashboard(address, access)

    async def run(overlook: Overlook) -> None:
        from ospbridge.daemon.dashboard_source import DashboardSource

        with opened:
            await opened.run(DashboardSource(overlook, recent))

    return run
