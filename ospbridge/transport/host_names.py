"""By which names a browser may call a server of ours.

A page in the user's own browser may come from anywhere, and a name of the attacker's that suddenly resolves to this
host (DNS rebinding) would let it read ours. Such a request names the attacker's host, so that only names that are known
to be ours are served: IP addresses, which nobody can make resolve to something else, localhost, this host's name, and
those that the user adds for a proxy.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["is_ip", "named", "names_us"]


def names_us(host: str, also: Container[str] = ()) -> bool:
    """Whether a Host header names us. Ports are left aside: a tunnel may lead here from another one."""
    name = named(host)
    if name is None:
        return False
    if name == "localhost" or name in also:
        return True
    own = socket.gethostname().lower()
    return name in (own, own.partition(".")[0], f"{own}.local") or is_ip(name)


def named(host: str) -> str | None:
    """The name in a Host header, in lower case; None where there is none."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for what is none
    except ValueError:
        return None
    if parts.netloc != host or "@" in host or parts.path:
        return None
    return (parts.hostname or "").rstrip(".") or None


def is_ip(name: str) -> bool:
    """Whether it is an address, written without brackets."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
