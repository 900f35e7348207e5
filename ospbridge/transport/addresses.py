"""Addresses as users write them, and what they resolve to."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

from ospbridge.errors import ConfigurationError, OspBridgeError, SimulatorNotFound
from ospbridge.interface import DEFAULT_PORT, Endpoint

_PASSING: Final = frozenset({socket.EAI_AGAIN, socket.EAI_FAIL, socket.EAI_MEMORY})
"""What a resolver says of itself rather than of a name: a host that starts has no name server yet."""
NAME_SERVER: Final = "check the spelling, and whether this host reaches its name server"
"""What to do then."""
LOOPBACK: Final = "127.0.0.1"
_DIGITS: Final = re.compile("[0-9]{1,100}")
"""``int`` takes more, such as signs and underscores; and less, of thousands of digits."""
_BRACKETED: Final = re.compile(r"\[(.*:.*)\](?::(.*))?")


def parse_endpoint(
    text: str,
    *,
    what: str = "a simulator's address",
    hint: str = f"write HOST:PORT, for instance {LOOPBACK}:{DEFAULT_PORT}",
    scheme: str = "",
    default_port: int | None = DEFAULT_PORT,
    least_port: int = 1,
) -> Endpoint:
    """``HOST:PORT``, ``[IPV6]:PORT``, or ``HOST`` where there is a ``default_port``; ``scheme`` may stand before it.

    Raises ConfigurationError for anything else, which says that it is not ``what``, and ``hint``.
    """
    if not isinstance(text, str):
        why = "it is no string"
    elif (found := _split(text.strip().removeprefix(scheme))) is None:
        why = "of more than one ':' each must be of an IPv6 address, or behind its ']'"
    else:
        host, port = found
        if not host:
            why = "the host is missing"
        elif port is None and default_port is not None:
            return Endpoint(host, default_port)
        elif port is None:
            why = "the port is missing"
        elif not _DIGITS.fullmatch(port):
            why = f"the port {port!r} is not a number"
        elif least_port <= int(port) < 65536:
            return Endpoint(host, int(port))
        else:
            why = f"the port {int(port)} is not between {least_port} and 65535"
    raise ConfigurationError(f"{text!r} is not {what}: {why}", hint=hint)


def _split(text: str) -> tuple[str, str | None] | None:
    """Host and port; None for what has a ':' too many, or none where there must be one."""
    if bracketed := _BRACKETED.fullmatch(text):
        host, port = bracketed.groups()
        return (host, port) if is_ip(host) else None
    if text.startswith("[") or text.count(":") > 1:
        return (text, None) if is_ip(text) else None
    host, colon, port = text.partition(":")
    return host, port if colon else None


def is_ip(name: str) -> bool:
    """Whether it is an address, written without brackets."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def family_of(address: str) -> socket.AddressFamily:
    """Of an address in numbers."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_loopback(host: str) -> bool:
    """Whether it is an IP address that only this host reaches; a name is none."""
    return is_ip(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback


def is_of_this_host(host: str) -> bool:
    """Whether an IP address is this host's own, of the loopback interface or another; a name is none."""
    if is_loopback(host) or not is_ip(host):
        return is_loopback(host)
    try:
        with socket.socket(family_of(host), socket.SOCK_DGRAM) as sock:
            # Only what is its own can be bound. To list its addresses takes AF_NETLINK, which our units forbid.
            sock.bind((host, 0))
    except OSError:
        return False
    return True


def unresolved(host: str, error: OSError | ValueError, absent: type[OspBridgeError]) -> OspBridgeError:
    """The error for a name that does not resolve: ``absent`` where that may be mended by waiting.

    ValueError is what resolvers say of names that could be nobody's.
    """
    why = f"the host name {host!r} does not resolve: {getattr(error, 'strerror', None) or error}"
    if isinstance(error, OSError) and (not isinstance(error, socket.gaierror) or error.errno in _PASSING):
        return absent(why, hint=NAME_SERVER)
    return ConfigurationError(why, hint="check the spelling, or write the IP address")


def resolve(endpoint: Endpoint) -> Endpoint:
    """The numeric address of ``endpoint``. Raises ConfigurationError for a name that there is not.

    And SimulatorNotFound where no name server answers, which may be mended by waiting. Of a name with several the first
    of IPv4: simulators seldom listen at another, whatever "localhost" is first.
    """
    try:
        found = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_DGRAM)
    except (OSError, ValueError) as error:
        raise unresolved(endpoint.host, error, SimulatorNotFound) from None
    *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    return Endpoint(str(address[0]), int(address[1]))
