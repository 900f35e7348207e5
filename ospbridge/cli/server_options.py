"""The options that say how an RLlink server is reached: its dialect, and what proves who it is.

``prefix`` stands before their names where a command has other options of TLS as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from ospbridge.cli.options import Decorator
    from ospbridge.transport.tls import StreamAddress

    SizeType = click.ParamType[int]
else:
    SizeType = click.ParamType  # became generic after the oldest click that serves

__all__ = ["SizeParam", "dialect_option", "largest_option", "server_address", "tls_options"]

LONGEST: Final = 99_999_999
"""Bytes of a message, as RLlink's header can announce them; tests compare it with that."""


class SizeParam(SizeType):
    """Bytes, or what stands for many of them; ``most``: no more than so many."""

    name = "SIZE"

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from ospbridge.errors import ConfigurationError
        from ospbridge.record.sizes import parse_size

        try:
            size = parse_size(str(value))
        except ConfigurationError as error:
            self.fail(f"{error.message}; {error.hint}.", param, ctx)
        if self.most is not None and size > self.most:
            self.fail(f"{value!r} is more than the {self.most:,} bytes that a message can have.", param, ctx)
        return size


def largest_option(prefix: str = "") -> Decorator:
    """``--largest-message``."""
    return click.option(
        f"--{prefix}largest-message",
        type=SizeParam(LONGEST),
        metavar="SIZE",
        default="32M",
        show_default=True,
        help="Take no message that is larger; none has more than 99,999,999 bytes.",
    )


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
    from ospbridge.transport.tls import TlsFiles, parse_stream

    files = (cert, key, ca)
    return parse_stream(text, tls=TlsFiles(*files) if any(files) else None, insecure=insecure)
