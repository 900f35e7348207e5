"""``ospbridge trace replay``: a trace as a simulator again."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ospbridge.cli.options import NumberRange
from ospbridge.cli.output import note
from ospbridge.cli.stopping import deaf

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.simulator.replaying import Told

__all__ = ["replay"]

MOST_TOLD: Final = 10
"""Differences of one client that are told; the rest is counted."""
EXIT_DIFFERENT: Final = 1


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--host", default="127.0.0.1", help="Address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=45454, help="Port to listen at; 0 picks one.")
@click.option(
    "--speed",
    type=NumberRange(0.001, 1000.0),
    metavar="FACTOR",
    help="Keep the recorded delays of answers: 1 as they were, 2 at twice the speed. Default: no delays.",
)
@click.option("--loop", is_flag=True, help="A reset after the last recorded one begins with the first again.")
@click.option(
    "--strict",
    is_flag=True,
    help="End with exit code 1 when a client does something else than the recorded one.",
)
@click.option("--quiet", is_flag=True, help="Say nothing but the address.")
def replay(  # noqa: PLR0917  # click passes options by name
    file: Path, host: str, port: int, speed: float | None, loop: bool, strict: bool, quiet: bool
) -> None:
    """Be the simulator that a trace recorded.

    The first line of output is the address, HOST:PORT. A client that joins there and does what the recorded one did
    gets the same answers, datagram for datagram; differences are reported on standard error. SIGTERM and Ctrl-C end it
    with exit code 0.
    """
    from ospbridge.cli.output import bar_of
    from ospbridge.errors import ConfigurationError
    from ospbridge.observe.trace import read_trace
    from ospbridge.simulator.replay_script import read_scripts
    from ospbridge.simulator.replaying import ReplayMachine
    from ospbridge.simulator.udp import UdpServer

    try:
        with bar_of("reading") as progress:
            scripts = read_scripts(read_trace(file, progress))
    except ConfigurationError as error:
        if str(file) in error.message:
            raise
        raise ConfigurationError(f"{file}: {error.message}", hint=error.hint) from None

    telling = _Telling(quiet=quiet)
    machine = ReplayMachine(scripts, tell=telling, speed=speed, loop=loop, strict=strict)
    server = UdpServer(machine, host=host, port=port, report=None if quiet else _tell_ignored)
    if strict:
        telling.stop = server.stop_soon
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: server.stop_soon())
        click.echo(str(server.address))
        server.run()
    finally:
        server.stop()
    deaf(signal.SIGTERM, signal.SIGINT)
    if not quiet:
        note(
            f"clients: {telling.clients}, steps: {machine.steps}, resets: {machine.resets}, "
            f"differences from the recording: {machine.differences}"
        )
    if strict and machine.differences:
        raise click.exceptions.Exit(EXIT_DIFFERENT)


def _tell_ignored(counts: dict[str, int]) -> None:
    note(f"ignored so far: {', '.join(f'{count} x {kind}' for kind, count in counts.items())}")


class _Telling:
    """Prints what is worth knowing of a replay, and not the same a thousand times."""

    def __init__(self, *, quiet: bool) -> None:
        self.clients = 0
        self._quiet = quiet
        self.stop: Callable[[], object] | None = None
        """Called at a difference."""
        self._differences = 0

    def __call__(self, told: Told) -> None:
        from ospbridge.simulator.replaying import What

        different = told.what is What.DIFFERS
        if told.what is What.JOINED:
            self.clients += 1
            self._differences = 0
        if different:
            self._differences += 1
        if not self._quiet and (not different or self._differences <= MOST_TOLD):
            place = "" if told.what is What.JOINED else f" at {told.time:.3f} s"
            note(f"conversation {told.conversation}{place}: {told.text}")
            if self._differences == MOST_TOLD and different:
                note("further differences of this client are only counted")
        if different and self.stop is not None:
            self.stop()
