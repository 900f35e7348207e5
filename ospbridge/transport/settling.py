"""How every TCP connection is set: messages go at once, and a host that vanished without a word is noticed."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import trio

__all__ = ["settle"]

IDLE_BEFORE_PROBE: Final = 10
"""Seconds of silence until the kernel asks whether the other host is still there ..."""
PROBE_EVERY: Final = 5
PROBES: Final = 4
"""... and how often, before the connection counts as broken: half a minute in all."""


def settle(sock: socket.socket | trio.socket.SocketType) -> None:
    """Set a connection, before or after it is made."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_BEFORE_PROBE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    with contextlib.suppress(OSError):  # not every network stack has it
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (IDLE_BEFORE_PROBE + PROBES * PROBE_EVERY)
        )
