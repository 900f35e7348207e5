"""Addresses as users write them, and what they resolve to."""

from __future__ import annotations

import socket

from ospbridge.errors import ConfigurationError
from ospbridge.interface import DEFAULT_PORT, Endpoint

__all__ = ["parse_endpoint", "parse_listening", "resolve"]

LOOPBACK = "127.0.0.1"


def parse_endpoint(text: str, *, default_port: int = DEFAULT_PORT) -> Endpoint:
    """``HOST:PORT``, ``HOST`` or ``[IPV6]:PORT``. Raises ConfigurationError for anything else."""
    host, port_text = _split(text.strip())
    if not host:
        raise _wrong(text, "the host is missing")
    if not _can_be_asked_for(host):
        raise _wrong(text, f"{host!r} can be no host's name")
    if port_text is None:
        return Endpoint(host, default_port)
    try:
        port = int(port_text)
    except ValueError:
        raise _wrong(text, f"the port {port_text!r} is not a number") from None
    if not 0 < port < 65536:
        raise _wrong(text, f"the port {port} is not between 1 and 65535")
    return Endpoint(host, port)


def parse_listening(text: str) -> Endpoint:
    """Where to listen: ``PORT`` of the loopback interface, or ``HOST:PORT``; port 0 takes a free one.

    Raises ConfigurationError for anything else.
    """
    host, port = (LOOPBACK, text) if text.isdecimal() else _split(text.strip())
    if not host or not _can_be_asked_for(host) or not port or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(
            f"{text!r} is no address to listen at",
            hint=f"write PORT or HOST:PORT, for instance {LOOPBACK}:9464; port 0 takes a free one",
        )
    return Endpoint(host, int(port))


def _split(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else None
    if text.count(":") > 1:
        return text, None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _can_be_asked_for(host: str) -> bool:
    """Whether a resolver takes it: for some names it raises what is no answer."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host


def _wrong(text: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is not a simulator's address: {why}",
        hint=f"write HOST:PORT, for instance 127.0.0.1:{DEFAULT_PORT}",
    )


def resolve(endpoint: Endpoint) -> tuple[socket.AddressFamily, Endpoint]:
    """The numeric address of ``endpoint``. Raises ConfigurationError for a name that does not resolve."""
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        raise ConfigurationError(
            f"the host name {endpoint.host!r} does not resolve: {error.strerror}",
            hint="check the spelling, or write the IP address",
        ) from None
    family, _, _, _, address = found[0]
    return family, Endpoint(str(address[0]), int(address[1]))
