"""The options that commands share, and the session they describe.

A command that talks to a simulator wears ``@simulator_options`` and gets a ``SimulatorAccess``. What talks, and numpy
with it, is imported when the session is opened, not for help.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ospbridge.cli.stopping import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ospbridge.interface import Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.session.blocking import BlockingSession

    Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
    EndpointType = click.ParamType[Endpoint]
else:
    EndpointType = click.ParamType  # became generic after the oldest click that serves

__all__ = [
    "LONGEST",
    "CloseNames",
    "NumberRange",
    "SimulatorAccess",
    "SimulatorAddress",
    "hub_named_by_option",
    "json_option",
    "limit_option",
    "log_options",
    "profile_option",
    "simulator_options",
    "timeout_option",
    "tls_options",
    "trace_option",
    "tracing",
    "waiting_told",
    "with_options",
]

C = TypeVar("C", bound="Callable[..., Any]")
LONGEST: Final = 86_400.0
"""Seconds: the largest limit that options take."""
SILENCE: Final = 1.0
"""Seconds after which a user who waits is told for what."""


class NumberRange(click.FloatRange):
    """``click.FloatRange`` without NaN, which no limit of click's own keeps out: every comparison with it is false."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Raises click.BadParameter."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid float range.", param, ctx)
        return number


class SimulatorAddress(EndpointType):
    """HOST:PORT, HOST or [IPV6]:PORT; whatever cannot be one is a usage error."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Endpoint:
        """Parse the address. Names are resolved later, when the session is opened."""
        from ospbridge.errors import ConfigurationError
        from ospbridge.interface import Endpoint
        from ospbridge.transport.addresses import parse_endpoint

        if isinstance(value, Endpoint):
            return value
        try:
            return parse_endpoint(str(value))
        except ConfigurationError as error:
            self.fail(f"{error.message}; {error.hint}.", param, ctx)


@dataclass(frozen=True, slots=True)
class SimulatorAccess:
    """Where the simulator is and how to talk to it. ``timeout`` in seconds, for connecting."""

    address: Endpoint
    profile: str
    trace: Path | None
    timeout: float

    @contextlib.contextmanager
    def session(
        self,
        *,
        reclaim_stale: bool = False,
        rejoin_locked: bool = False,
        step_timeout: float | None = None,
    ) -> Iterator[BlockingSession]:
        """A session that is left in order, whatever happens inside.

        ``reclaim_stale`` frees agents of our own sessions that died, ``rejoin_locked`` only those of a server that
        answers nobody before; a command that only looks does neither.
        """
        from ospbridge.osp.timing import Limits
        from ospbridge.session.blocking import BlockingSession

        limits = (
            Limits(connect=self.timeout)
            if step_timeout is None
            else Limits(connect=self.timeout, step=step_timeout)
        )
        with contextlib.ExitStack() as stack:
            trace = stack.enter_context(tracing(self.trace))
            with waiting_told(f"waiting for a simulator at {self.address}"):
                session = BlockingSession.connect(
                    self.address,
                    profile=self.profile,
                    limits=limits,
                    trace=trace,
                    reclaim_stale=reclaim_stale,
                    rejoin_locked=rejoin_locked,
                )
            try:
                yield session
            finally:
                with uninterrupted():
                    session.close()


@contextlib.contextmanager
def tracing(file: Path | None) -> Iterator[TraceWriter | None]:
    """Whoever writes the trace, which is closed in the end; None without a file."""
    if file is None:
        yield None
        return
    from ospbridge.observe import logs
    from ospbridge.observe.trace import TraceWriter

    # A trace whose disk is full logs that; left alone, structlog writes to standard output.
    logs.configure(level="warning")
    with TraceWriter(file) as writer:
        yield writer


@contextlib.contextmanager
def waiting_told(what: str) -> Iterator[None]:
    """Tell a user at a terminal what is being waited for, once it takes longer than a moment."""
    if not sys.stderr.isatty():
        yield
        return
    import threading

    timer = threading.Timer(SILENCE, lambda: click.echo(f"{what} ...", err=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def profile_option(help_text: str) -> Decorator:
    """``--profile``, with what it says."""
    return click.option(
        "--profile",
        type=click.Choice(["auto", "document", "nerd"]),
        default="auto",
        show_default=True,
        help=help_text,
    )


def trace_option(help_text: str = "Write every datagram with its meaning to FILE.") -> Decorator:
    """``--trace``, with what it writes."""
    return click.option(
        "--trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help=help_text
    )


def limit_option(name: str, usual: float, help_text: str) -> Decorator:
    """An option for the seconds that something may take; ``usual``: how many where nobody says."""
    return click.option(
        name,
        type=NumberRange(0, LONGEST, min_open=True),
        default=usual,
        show_default=True,
        metavar="SECONDS",
        help=help_text,
    )


def timeout_option(default: float = 10.0, *, when: str = "no simulator has answered") -> Decorator:
    """``--timeout``, with the seconds that it usually is, and when it counts."""
    return limit_option("--timeout", default, f"Give up when {when} within this time.")


_SIMULATOR_OPTIONS: Final = (
    click.option(
        "--simulator",
        type=SimulatorAddress(),
        default="127.0.0.1:45454",
        show_default=True,
        metavar="HOST:PORT",
        help="Address of the simulator.",
    ),
    profile_option(
        "Kind of OSP server: as the document of OSP 1.1 says, as the NERD toolkit has it, or find out."
    ),
    trace_option(),
    timeout_option(),
)


def with_options(command: Callable[..., Any], options: Sequence[Decorator]) -> Callable[..., Any]:
    """``command`` with options that its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def simulator_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that talks to a simulator; they arrive as one ``simulator``."""

    @functools.wraps(function)
    def with_access(
        *args: Any, simulator: Endpoint, profile: str, trace: Path | None, timeout: float, **rest: Any
    ) -> Any:
        return function(*args, simulator=SimulatorAccess(simulator, profile, trace, timeout), **rest)

    return with_options(with_access, _SIMULATOR_OPTIONS)


def json_option(help_text: str) -> Callable[[C], C]:
    """``--json``, with what it prints."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


_LOG_OPTIONS: Final = (
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error", "critical"]),
        default="info",
        show_default=True,
        help="The least level that is logged.",
    ),
    click.option(
        "--log-json/--no-log-json",
        default=None,
        help="Log JSON lines, or readable lines. Default: JSON unless on a terminal.",
    ),
)


def log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that logs; they arrive as ``log_level`` and ``log_json``."""
    return with_options(command, _LOG_OPTIONS)


class CloseNames(click.Group):
    """A group of commands that answers a name that is almost right with the right one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run."""
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            import difflib

            close = difflib.get_close_matches(name, self.commands)
            hint = f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@contextlib.contextmanager
def hub_named_by_option() -> Iterator[None]:
    """Around an attempt to reach a daemon: where none is found, tell how a command, and not Python, names one."""
    from ospbridge.errors import HubNotFound

    try:
        yield
    except HubNotFound as error:
        if error.hint == HubNotFound.default_hint:
            error.hint = "start it with `ospbridge connect`, or name it with --hub unix:PATH"
        raise


def tls_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add them; they arrive as one ``tls``, None where none was said. Raises ConfigurationError where one lacks."""

    @functools.wraps(function)
    def with_files(
        *args: Any, tls_cert: str | None, tls_key: str | None, tls_ca: str | None, **rest: Any
    ) -> Any:
        tls = None
        if tls_cert or tls_key or tls_ca:
            from ospbridge.transport.tls import TlsFiles

            tls = TlsFiles.of(tls_cert, tls_key, tls_ca)
        return function(*args, tls=tls, **rest)

    return with_options(with_files, _TLS_OPTIONS)


_TLS_OPTIONS = (
    click.option("--tls-cert", metavar="FILE", help="Our certificate for a hub on another host, as PEM."),
    click.option("--tls-key", metavar="FILE", help="The key of that certificate, as PEM."),
    click.option("--tls-ca", metavar="FILE", help="The CA that the daemon's certificate must come from."),
)
