"""``ospbridge top``: a running daemon, live."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from ospbridge.cli.options import NumberRange, hub_named_by_option, tls_options
from ospbridge.cli.stopping import stoppable

if TYPE_CHECKING:
    from ospbridge.cli.top_screen import Screen
    from ospbridge.hub.status import StatusReply
    from ospbridge.session.hub_client import HubClient
    from ospbridge.transport.tls import TlsFiles

__all__ = ["top"]

PATIENCE = 2.0
"""Seconds to wait for a daemon's answer."""


@click.command()
@click.option(
    "--hub",
    "hubs",
    multiple=True,
    metavar="ADDRESS",
    help="A daemon's hub: unix:PATH, or tls://HOST:PORT on another host; may be repeated. "
    "Default: all hubs in $RUNTIME_DIRECTORY or $XDG_RUNTIME_DIR/ospbridge, else the one of the system's service.",
)
@click.option(
    "--interval",
    type=NumberRange(0.1, 3600.0),
    metavar="SECONDS",
    default=1.0,
    show_default=True,
    help="Time between two looks.",
)
@click.option("--once", is_flag=True, help="Look twice, print, and end; the default without a terminal.")
@tls_options
def top(
    *,
    hubs: tuple[str, ...],
    interval: float,
    once: bool,
    tls: TlsFiles | None,
) -> None:
    """Watch a running daemon: simulators, agents, upstreams, live.

    Steps a second are over the last 1, 10 and 60 seconds, step times and datagrams over the last 10. Ctrl-C ends it.
    """
    from ospbridge.cli.top_screen import Screen
    from ospbridge.errors import OspBridgeError

    watched = [_Hub(address, tls) for address in hubs or _all_hubs()]
    screen = Screen(plain=not (sys.stdout.encoding or "").lower().startswith("utf"))
    try:
        # Whoever asks for what is not there learns it from the first answer, as with `ospbridge status`. A hub that
        # nobody named may be what a daemon left that was killed.
        for hub in tuple(watched):
            try:
                screen.look(hub.address, hub.ask(), time.monotonic())
            except OspBridgeError:
                if hubs or len(watched) == 1:
                    raise
                watched.remove(hub)
                hub.close()
        if once or not sys.stdout.isatty():
            time.sleep(interval)
            _look(screen, watched)
            click.echo(screen.text(), nl=False)
        else:
            with stoppable():
                _live(screen, watched, interval)
    finally:
        for hub in watched:
            hub.close()


def _look(screen: Screen, watched: list[_Hub]) -> None:
    from ospbridge.errors import OspBridgeError

    for hub in watched:
        try:
            screen.look(hub.address, hub.ask(), time.monotonic())
        except OspBridgeError as error:
            hub.close()
            screen.lost(hub.address, error.message)


def _live(screen: Screen, watched: list[_Hub], interval: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(screen.drawn(), console=console, screen=True, auto_refresh=False) as live:
        try:
            while True:
                time.sleep(interval)
                _look(screen, watched)
                live.update(screen.drawn(), refresh=True)
        except KeyboardInterrupt:
            return


def _all_hubs() -> list[str]:
    """Those of this user's runtime directory; the default one where there is none, which says what is missing."""
    import os

    from ospbridge.observe.runtime import found_hub, hubs

    alone = found_hub()
    # os.path: a directory that this user may not enter has none.
    found = [path for path in (alone, *hubs()) if os.path.exists(path)]  # noqa: PTH110
    return [f"unix:{path}" for path in found or [alone]]


class _Hub:
    """One daemon's, asked again and again; it is connected to anew where it went away."""

    def __init__(self, address: str, tls: TlsFiles | None) -> None:
        self.address = address
        self._tls = tls
        self._client: HubClient | None = None

    def ask(self) -> StatusReply:
        """Raises HubLost and others where it does not answer."""
        from ospbridge.session.hub_client import HubClient

        if self._client is None:
            with hub_named_by_option():
                self._client = HubClient.connect(
                    self.address, wait=0.0, timeout=PATIENCE, spin=False, tls=self._tls
                )
        return self._client.status()

    def close(self) -> None:
        """Forget the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()
