"""Where servers listen on TCP, with or without TLS: addresses as users write them, and the PEM files of a client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.addresses import is_loopback, parse_endpoint
from ospbridge.transport.securing import no_authorities, see, show

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["SCHEME", "ServerTls", "StreamAddress", "listening_at", "parse_stream"]

SCHEME: Final = "tls://"
DEFAULT_PORT: Final = 5555
"""Where an address names none."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """PEM files: whose certificates to believe (none: those of the system), and what to show if asked."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """Verifies the server's name and certificate; TLS 1.2 or later. Raises ConfigurationError for unfit files."""
        if (self.cert is None) != (self.key is None):
            raise ConfigurationError(
                "a TLS client shows a certificate and holds its key; only one of them was named",
                hint="name both, or neither",
            )
        see((self.ca, self.cert, self.key))
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (ssl.SSLError, ValueError) as error:
            raise no_authorities(self.ca, error) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.cert is not None and self.key is not None:
            show(context, self.cert, self.key)
        return context


@dataclass(frozen=True, slots=True)
class StreamAddress:
    """Where a server listens. Without ``tls`` only on this host, unless ``insecure``."""

    endpoint: Endpoint
    tls: ServerTls | None = None
    insecure: bool = False

    def __str__(self) -> str:
        return f"{SCHEME}{self.endpoint}" if self.tls is not None else str(self.endpoint)


def parse_stream(
    text: str, *, tls: ServerTls | None = None, insecure: bool = False, default_port: int = DEFAULT_PORT
) -> StreamAddress:
    """The address of ``HOST:PORT`` or ``tls://HOST:PORT``; ``tls`` may say more about the latter.

    Raises ConfigurationError for anything else.
    """
    place = text.removeprefix(SCHEME)
    wants_tls = place != text
    if not wants_tls and tls is not None:
        raise ConfigurationError(
            f"certificates were given, but {text!r} is an address without TLS", hint=f"write {SCHEME}{text}"
        )
    endpoint = _place(place, default_port=default_port)
    return StreamAddress(endpoint, (tls or ServerTls()) if wants_tls else None, insecure)


def _place(text: str, *, default_port: int = DEFAULT_PORT, least_port: int = 1) -> Endpoint:
    try:
        return parse_endpoint(text, default_port=default_port, least_port=least_port)
    except ConfigurationError as error:
        why = error.message.partition(": ")[2]
        raise ConfigurationError(
            f"{text!r} is not a server's address: {why}",
            hint=f"write HOST:PORT or {SCHEME}HOST:PORT, for instance 127.0.0.1:{default_port}",
        ) from None


def listening_at(text: str, *, secured: bool, insecure: bool) -> Endpoint:
    """Where to listen: ``HOST:PORT``, port 0 for a free one. Raises ConfigurationError, also for another host's reach.

    ``secured``: TLS is spoken there.
    """
    if text.startswith(SCHEME):
        raise ConfigurationError(
            f"{text!r} is how clients write an address, not where to listen",
            hint=f"write {text.removeprefix(SCHEME)}: with --tls-cert, --tls-key and --tls-ca TLS is spoken there",
        )
    endpoint = _place(text, least_port=0)
    if not (secured or insecure or endpoint.host == "localhost" or is_loopback(endpoint.host)):
        raise ConfigurationError(
            f"{endpoint} can be reached by other hosts, and without TLS anybody between could read and change what is "
            "sent",
            hint="name a certificate, its key and a CA, or insist with --insecure",
        )
    return endpoint
