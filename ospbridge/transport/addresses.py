"""Addresses as users write them, and what they resolve to."""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

from ospbridge.errors import ConfigurationError, SimulatorNotFound
from ospbridge.interface import DEFAULT_PORT, Endpoint

__all__ = [
    "NAME_SERVER",
    "PASSING",
    "is_ip",
    "is_loopback",
    "is_of_this_host",
    "parse_endpoint",
    "parse_listening",
    "resolve",
]

PASSING: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY})
"""What a resolver says of itself rather than of a name: a host that starts has no name server yet."""
NAME_SERVER: Final = "check the spelling, and whether this host reaches its name server"
"""What to do then."""
LOOPBACK = "127.0.0.1"
LONGEST_NUMBER = 100
"""Digits of what may still be told as a port that is too large."""


def parse_endpoint(text: str, *, default_port: int = DEFAULT_PORT, least_port: int = 1) -> Endpoint:
    """``HOST:PORT``, ``HOST`` or ``[IPV6]:PORT``. Raises ConfigurationError for anything else."""
    if not isinstance(text, str):
        raise _wrong(text, "it is no string")
    found = _split(text.strip())
    if found is None:
        raise _wrong(text, "of more than one ':' each must be of an IPv6 address, or behind its ']'")
    host, port_text = found
    if not host:
        raise _wrong(text, "the host is missing")
    if not _can_be_asked_for(host):
        raise _wrong(text, f"{host!r} can be no host's name")
    if port_text is None:
        return Endpoint(host, default_port)
    if not _is_number(port_text):
        raise _wrong(text, f"the port {port_text!r} is not a number")
    port = int(port_text)
    if not least_port <= port < 65536:
        raise _wrong(text, f"the port {port} is not between {least_port} and 65535")
    return Endpoint(host, port)


def parse_listening(text: str) -> Endpoint:
    """Where to listen: ``PORT`` of the loopback interface, or ``HOST:PORT``; port 0 takes a free one.

    Raises ConfigurationError for anything else.
    """
    host, port = (LOOPBACK, text) if _is_number(text) else _split(text.strip()) or ("", None)
    if not host or not _can_be_asked_for(host) or not port or not _is_number(port) or int(port) > 65535:
        raise ConfigurationError(
            f"{text!r} is no address to listen at",
            hint=f"write PORT or HOST:PORT, for instance {LOOPBACK}:9464; port 0 takes a free one",
        )
    return Endpoint(host, int(port))


def _split(text: str) -> tuple[str, str | None] | None:
    """Host and port; None for what has a ':' too many, or none where there must be one."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or not _is_ipv6(host) or rest[:1] not in {"", ":"}:
            return None
        return host, rest[1:] if rest else None
    if text.count(":") > 1:
        return (text, None) if _is_ipv6(text) else None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True


def is_ip(name: str) -> bool:
    """Whether it is an address, written without brackets."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether it is an IP address that only this host reaches; a name is none."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def is_of_this_host(host: str) -> bool:
    """Whether an IP address is this host's own, of the loopback interface or another; a name is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            # Only what is its own can be bound; of the loopback interface also what no interface has.
            sock.bind((ipaddress.ip_address(host).compressed, 0))
    except (OSError, ValueError):
        return is_loopback(host)
    return True


def _is_number(text: str) -> bool:
    """What ``int`` takes is more, such as signs and underscores; and less, of thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) <= LONGEST_NUMBER


def _can_be_asked_for(host: str) -> bool:
    """Whether a resolver takes it: for some names it raises what is no answer; and none is asked for a URL."""
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in host and "/" not in host


def _wrong(text: object, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{text!r} is not a simulator's address: {why}",
        hint=f"write HOST:PORT, for instance 127.0.0.1:{DEFAULT_PORT}",
    )


def resolve(endpoint: Endpoint) -> tuple[socket.AddressFamily, Endpoint]:
    """The numeric address of ``endpoint``. Raises ConfigurationError for a name that there is not.

    And where there are link-local ones of IPv6 only, which mean nothing without an interface; and SimulatorNotFound
    where no name server answers, which may be mended by waiting.
    Of a name with several the first of IPv4: simulators seldom listen at another, whatever "localhost" is first.
    """
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except socket.gaierror as error:
        why = f"the host name {endpoint.host!r} does not resolve: {error.strerror}"
        if error.errno in PASSING:
            raise SimulatorNotFound(why, hint=NAME_SERVER) from None
        raise ConfigurationError(why, hint="check the spelling, or write the IP address") from None
    family, _, _, _, address = min(
        found, key=lambda one: (one[0] != socket.AF_INET, _is_link_local(one[4][0]))
    )
    host = str(address[0])
    if family == socket.AF_INET6 and _is_link_local(host):
        raise ConfigurationError(
            f"{endpoint} has only a link-local address of IPv6, which ospbridge cannot send to",
            hint="give another address of that host, one of IPv4 for instance",
        )
    return family, Endpoint(host, int(address[1]))


def _is_link_local(host: object) -> bool:
    return ipaddress.ip_address(str(host)).is_link_local
