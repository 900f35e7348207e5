"""The options that say how an RLlink server is reached: its dialect, and what proves who it is.

``prefix`` stands before their names where a command has other options of TLS as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ospbridge.cli.options import Decorator
    from ospbridge.transport.streams import StreamAddress

__all__ = ["dialect_option", "server_address", "tls_options"]


def dialect_option(prefix: str = "") -> Decorator:
    """``--dialect``."""
    return click.option(
        f"--{prefix}dialect",
        type=click.Choice(["auto", "json", "msgpack"]),
        default="auto",
        show_default=True,
        help="How it speaks RLlink: json as Ray 2.47 and 2.48, msgpack as Ray 2.49 and later; auto finds out.",
    )


def tls_options(prefix: str = "") -> tuple[Decorator, ...]:
    """``--tls-ca``, ``--tls-cert``, ``--tls-key`` and, without a prefix in any case, ``--insecure``."""
    return (
        click.option(
            f"--{prefix}tls-ca",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The CA that the server's certificate must come from. Default: those of the system.",
        ),
        click.option(
            f"--{prefix}tls-cert",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Our certificate, if it asks.",
        ),
        click.option(
            f"--{prefix}tls-key",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The key of that certificate.",
        ),
        click.option("--insecure", is_flag=True, help="Speak RLlink with other hosts even without TLS."),
    )


def server_address(
    text: str, *, ca: Path | None, cert: Path | None, key: Path | None, insecure: bool
) -> StreamAddress:
    """What these options and HOST:PORT say. Raises ConfigurationError for what is no address."""
    from ospbridge.transport.streams import ServerTls, parse_stream

    files = (ca, cert, key)
    return parse_stream(text, tls=ServerTls(*files) if any(files) else None, insecure=insecure)
