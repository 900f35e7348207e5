"""The sockets of a simulator: where it listens, and what to do where it may not."""

from __future__ import annotations

import errno
import socket
from typing import Final

from ospbridge.errors import ConfigurationError

__all__ = ["bound", "enlarge"]

BUFFER: Final = 4 * 1024 * 1024
"""Asked for in both directions; the kernel gives what it allows."""
_OTHERWISE: Final = {
    errno.EADDRINUSE: "another simulator may run there; stop it, or take a free port with --port 0",
    errno.EADDRNOTAVAIL: "this host has no such address; 127.0.0.1 is this host alone, 0.0.0.0 all of them",
    errno.EAFNOSUPPORT: "this host speaks no IPv6; 127.0.0.1 is this host by IPv4",
    errno.EACCES: "ports below 1024 are not for every user: take another one with --port",
}
"""What to do where nobody may listen."""


def bound(host: str, port: int) -> tuple[socket.socket, int]:
    """The main socket. SO_REUSEADDR stays off: two simulators on one port would share its datagrams."""
    if not isinstance(port, int) or not 0 <= port < 65536:  # type: ignore[redundant-expr]  # users may check no types
        # The resolver takes what is larger, and cuts it.
        raise ConfigurationError(
            f"cannot listen at port {port!r}: expected 0 to 65535", hint="port 0 takes a free one"
        )
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it can be no host's name"
        raise ConfigurationError(
            f"cannot resolve the host {host!r}: {why}", hint="give an address such as 127.0.0.1"
        ) from None
    try:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            enlarge(sock)
            sock.bind(address)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        raise ConfigurationError(
            f"cannot listen at {host}:{port}: {error.strerror}",
            hint=_OTHERWISE.get(error.errno or 0, "take an address and a port that this user may listen at"),
        ) from None
    return sock, family


def enlarge(sock: socket.socket) -> None:
    """Room for a burst: what does not fit is lost."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
