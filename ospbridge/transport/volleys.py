"""Several datagrams of one size to a connected peer in one call, where the kernel cuts them apart behind it.

Most of what a datagram costs is the call: sixteen in one take a fifth of what they take one by one. Linux does so since
4.18 (UDP_SEGMENT); on the wire, and to whoever receives them, they are what they would be otherwise.
"""

from __future__ import annotations

import errno
import struct
import sys
from contextlib import suppress
from socket import MSG_DONTWAIT
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

__all__ = ["Volleys"]

MOST: Final = 64
"""Datagrams of one call: what the oldest kernels that can do it take."""
MOST_BYTES: Final = 65_507
"""Of one call, as of one datagram."""
_SOL_UDP: Final = 17
_UDP_SEGMENT: Final = 103
_SIZE: Final = struct.Struct("=H")
NOT_HERE: Final = frozenset(
    {errno.EINVAL, errno.EIO, errno.EMSGSIZE, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ENOSYS}
)
"""What the kernel says where the way to the peer allows no volleys: datagrams longer than its MTU, IPsec, interfaces
that cannot sum them up. Nothing was sent then."""


class Volleys:
    """To the peer of one connected socket. ``enabled``: as long as nothing speaks against it."""

    __slots__ = ("enabled",)

    def __init__(self, sock: socket.socket) -> None:
        self.enabled = False
        if sys.platform == "linux":
            # A kernel that does not know the option would send all of them as one datagram.
            with suppress(OSError):
                sock.getsockopt(_SOL_UDP, _UDP_SEGMENT)
                self.enabled = True

    def send(self, sock: socket.socket, datagrams: Sequence[bytes | bytearray]) -> None:
        """All of them, in order, without waiting. Raises OSError as a socket does; the later ones are lost then."""
        at = 0
        if self.enabled and len(datagrams) > 1:
            sizes = set(map(len, datagrams))
            if len(sizes) == 1:
                at = self._sent_together(sock, datagrams, sizes.pop())
        for datagram in datagrams[at:] if at else datagrams:
            sock.send(datagram, MSG_DONTWAIT)

    def _sent_together(self, sock: socket.socket, datagrams: Sequence[bytes | bytearray], size: int) -> int:
        """How many of them went out, until one call was refused."""
        most = min(MOST, MOST_BYTES // size) if size else 0
        if most < 2:  # one alone needs no volley
            return 0
        segment = [(_SOL_UDP, _UDP_SEGMENT, _SIZE.pack(size))]
        for at in range(0, len(datagrams), most):
            try:
                sock.sendmsg(datagrams[at : at + most], segment, MSG_DONTWAIT)
            except OSError as error:
                if error.errno not in NOT_HERE:
                    raise
                self.enabled = False
                return at
        return len(datagrams)
