"""How commands name a daemon, and on another host the files that they show it, and trust it by."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import click

from ospbridge.cli.options import with_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["hub_named_by_option", "tls_options"]


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

    return with_options(with_files, _OPTIONS)


_OPTIONS = (
    click.option("--tls-cert", metavar="FILE", help="Our certificate for a hub on another host, as PEM."),
    click.option("--tls-key", metavar="FILE", help="The key of that certificate, as PEM."),
    click.option("--tls-ca", metavar="FILE", help="The CA that the daemon's certificate must come from."),
)
