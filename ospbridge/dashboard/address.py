"""Where the dashboard listens, who may come in, and by which names it is called."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.addresses import is_ip
from ospbridge.transport.admission import host_name, names_us

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["CREDENTIAL", "Access", "called", "listening", "place", "read_token"]

CREDENTIAL: Final = "dashboard-token"
"""The name that a systemd credential with the token has."""
SHORTEST_TOKEN: Final = 16
LONGEST_TOKEN: Final = 512
BACKLOG: Final = 32
_NAME: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may come in: ``token`` is what they must show, empty where the address alone suffices."""

    token: str = ""
    names: tuple[str, ...] = ()
    """By which the dashboard is called besides those that every host has."""

    @property
    def cookie(self) -> str:
        """What a browser that showed the token is given instead. It outlives the daemon, but not the token."""
        return hmac.new(self.token.encode(), b"ospbridge dashboard", hashlib.sha256).hexdigest()

    def admits(self, *, token: str = "", cookie: str = "") -> bool:
        """Whether one of them is right. Takes as long for a wrong one as for the right one."""
        if not self.token:
            return True
        by_token = hmac.compare_digest(token.encode(), self.token.encode())
        by_cookie = hmac.compare_digest(cookie.encode(), self.cookie.encode())
        return by_token or by_cookie

    def knows(self, host: str) -> bool:
        """Whether a Host header names us. Ports are left aside: a tunnel may lead here from another one."""
        return names_us(host, self.names)

    def came_from_us(self, origin: str) -> bool:
        """Whether an Origin header names a page of ours."""
        scheme, found, host = origin.partition("://")
        return bool(scheme and found) and self.knows(host)


def called(name: str) -> str:
    """A name that the user gives the dashboard, as ``Access`` compares it.

    Raises ConfigurationError for what is more than a name, or none: no browser would ever call it so.
    """
    found = name.strip().lower().removesuffix(".")
    if _NAME.fullmatch(found) or is_ip(found):
        return found
    inner = host_name(found.partition("://")[2].partition("/")[0] or found.partition("/")[0])
    if inner is not None and (_NAME.fullmatch(inner) or is_ip(inner)):
        hint = f"write {inner} alone, without scheme, port and path"
    else:
        hint = "write a name as browsers send it: letters of ASCII, digits, hyphens and dots; others begin with xn--"
    raise ConfigurationError(
        f"browsers cannot call the dashboard {name!r}, which is no name of a host", hint=hint
    )


def read_token(file: Path | None) -> str:
    """The token in ``file``, or in the systemd credential of its name; empty where there is none of them.

    Raises ConfigurationError for a file that cannot be read, that everybody can read, or that holds no token.
    """
    if file is None:
        directory = os.environ.get("CREDENTIALS_DIRECTORY")
        file = Path(directory) / CREDENTIAL if directory else None
        if file is None or not file.exists():
            return ""
    try:
        mode = file.stat().st_mode
        # Of a device that never ends the beginning is read; at a pipe that nobody writes to a daemon must not hang.
        token = ""
        if not file.resolve().is_fifo():
            with file.open(encoding="ascii") as opened:
                token = opened.read(2 * LONGEST_TOKEN).strip()
    except OSError as error:
        raise ConfigurationError(
            f"the dashboard's token cannot be read from {file}: {error.strerror}",
            hint="name a file that the daemon can read with --dashboard-token FILE",
        ) from None
    except UnicodeDecodeError:
        token, mode = "", 0
    if mode & 0o007:
        raise ConfigurationError(
            f"every user of this host may open {file}, which holds the dashboard's token",
            hint=f"say `chmod o= {file}`",
        )
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not token.isprintable() or " " in token:
        raise ConfigurationError(
            f"{file} holds no token: expected one line of {SHORTEST_TOKEN} to {LONGEST_TOKEN} ASCII characters "
            "without blanks",
            hint=f"make one with `(umask 077; openssl rand -hex 32 >{file})`",
        )
    return token


def place(endpoint: Endpoint, *, guarded: bool) -> tuple[int, int, int, Any]:
    """Family, kind, protocol and address of a socket that may listen there. ``guarded``: a token is asked for.

    Raises ConfigurationError for an address that does not resolve, or can be reached by others unguarded.
    """
    try:
        found = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise ConfigurationError(
            f"the host name {endpoint.host!r} of the dashboard does not resolve: {error.strerror}",
            hint="check the spelling, or write the IP address",
        ) from None
    family, kind, protocol, _, address = found[0]
    if not guarded and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        raise ConfigurationError(
            f"other hosts can reach a dashboard at {endpoint}, and no token is asked for",
            hint="listen at 127.0.0.1 and come by `ssh -L`, or name a token with --dashboard-token FILE",
        )
    return family, kind, protocol, address


def listening(endpoint: Endpoint, *, guarded: bool) -> socket.socket:
    """A socket that listens there. Raises ConfigurationError as ``place`` does, and for an address that is in use."""
    family, kind, protocol, address = place(endpoint, guarded=guarded)
    try:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"the dashboard cannot listen at {endpoint}: {error.strerror}",
            hint="stop what listens there, or choose another one with --dashboard [HOST:]PORT; port 0 takes a free one",
        ) from None
    return sock
