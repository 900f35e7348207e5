"""The client's UDP sockets: one to find the server and talk to its handler, one to see whether its port is closed."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import Final

from ospbridge.errors import ConfigurationError, SimulatorNotFound
from ospbridge.interface import Endpoint
from ospbridge.transport.addresses import family_of
from ospbridge.transport.admission import closed_on_error

LARGEST_DATAGRAM: Final = 65_536
MOST_EARLY: Final = 1024
"""Datagrams that a handler may send before it is connected to; more are read when it is."""
RECEIVE_BUFFER: Final = 4 * 1024 * 1024
"""Listings come in bursts without flow control; the system may grant less (net.core.rmem_max), but not to root."""
_SO_RCVBUFFORCE: Final = 33
NO_WAY: Final = frozenset(
    {errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN, errno.EADDRNOTAVAIL}
)
"""What a host says whose network is down, or has no address yet, as when it starts: waiting may mend that."""


def open_udp(peer: str, *, local_port: int = 0, local_host: str = "") -> socket.socket:
    """A non-blocking UDP socket with a large receive buffer, which can reach a numeric address such as ``peer``."""
    with closed_on_error(socket.socket(family_of(peer), socket.SOCK_DGRAM)) as sock:
        sock.setblocking(False)
        for option in (socket.SO_RCVBUF, _SO_RCVBUFFORCE):
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, option, RECEIVE_BUFFER)
        if local_port:
            sock.bind((local_host, local_port))
        return sock


def open_beside(sock: socket.socket) -> socket.socket | None:
    """A second socket at the port of a connected one: it gets what others send there. None where there can be none."""
    beside = None
    try:
        beside = socket.socket(sock.family, socket.SOCK_DGRAM)
        beside.setblocking(False)
        for each in (sock, beside):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        beside.bind(sock.getsockname())
        beside.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    except OSError:
        if beside is not None:
            beside.close()
        beside = None
    # Nobody else is to join them there.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return beside


def closed_port_probe(server: Endpoint) -> socket.socket:
    """A connected socket that has sent one throw-away datagram: a closed port answers it with ECONNREFUSED.

    An unconnected socket never learns of a closed port. The datagram is a lone end byte, which is no request. Raises
    SimulatorNotFound where there is no way to the server at present, and ConfigurationError where there can be none.
    """
    sock = socket.socket(family_of(server.host), socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.connect((server.host, server.port))
        sock.send(b"x")
    except ConnectionRefusedError:
        pass
    except OSError as error:
        sock.close()
        why, hint = f"cannot send to {server}: {error.strerror}", "check the address and the network"
        if error.errno in NO_WAY:
            raise SimulatorNotFound(why, hint=hint) from None
        raise ConfigurationError(why, hint=hint) from None
    return sock


def send_to(sock: socket.socket, data: bytes, to: Endpoint) -> None:
    """Send without being connected. What cannot be sent is lost, as any datagram may be."""
    with suppress(OSError):
        sock.sendto(data, (to.host, to.port))


def receive_from(sock: socket.socket) -> tuple[bytes, Endpoint] | None:
    """A datagram and where it came from; None where nothing is there."""
    try:
        data, address = sock.recvfrom(LARGEST_DATAGRAM)
    except BlockingIOError:
        return None
    return data, Endpoint(str(address[0]), int(address[1]))


def connect_to(sock: socket.socket, handler: Endpoint) -> list[bytes]:
    """Connect to the handler; what it sent before, in order, but no more than it may send then.

    Connecting does not empty the queue: what other sources sent before it would be read as the handler's.
    """
    sock.connect((handler.host, handler.port))
    early: list[bytes] = []
    while len(early) < MOST_EARLY and (packet := receive_from(sock)) is not None:
        data, source = packet
        if source == handler:
            early.append(data)
    return early
