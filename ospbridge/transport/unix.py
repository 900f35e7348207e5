"""Unix stream sockets: addresses as users write them, connecting, and who is at the other end."""

from __future__ import annotations

import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import Final

from ospbridge.errors import ConfigurationError
from ospbridge.transport.admission import closed_on_error

LONGEST_PATH: Final = 107
"""Bytes of a path that a Unix socket's address holds."""
IN_ROOM: Final = 32
"""Bytes of it that the names of a temporary directory and of a socket in that take, at most."""
SCHEME: Final = "unix:"
_CREDENTIALS: Final = struct.Struct("3i")


def parse_unix(text: str) -> Path:
    """The path of ``unix:PATH``. Raises ConfigurationError for anything else."""
    if not text.startswith(SCHEME) or not text.removeprefix(SCHEME).strip("/"):
        raise ConfigurationError(
            f"{text!r} is not a hub's address",
            hint=f"write {SCHEME}PATH, for instance {SCHEME}/run/ospbridge/hub.sock",
        )
    path = Path(text.removeprefix(SCHEME))
    length = len(os.fsencode(path))
    if length > LONGEST_PATH or "\0" in text:
        raise ConfigurationError(
            f"the hub's path {str(path)!r} has {length} bytes; a Unix socket's may have {LONGEST_PATH}, none of them 0",
            hint="use a shorter path",
        )
    return path


def room_for_sockets() -> str:
    """Where temporary directories with sockets in them are made: as ``tempfile`` has it, where that path is short."""
    usual = tempfile.gettempdir()
    return usual if len(os.fsencode(usual)) + IN_ROOM <= LONGEST_PATH else "/tmp"  # noqa: S108


def connect_unix(path: Path) -> socket.socket:
    """A connected, non-blocking stream socket. Raises OSError."""
    with closed_on_error(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
        # A listener's full backlog is EAGAIN here, at once: connecting never waits.
        sock.setblocking(False)
        sock.connect(str(path))
        return sock


def peer_pid(sock: socket.socket) -> int:
    """The process that connected, as the kernel knows it; 0 where that lies outside this pid namespace."""
    try:
        told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return 0
    return int(_CREDENTIALS.unpack(told)[0])
