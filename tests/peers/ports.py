"""Ports for servers that take a number only, not a socket: what else Ray starts takes none of them meanwhile."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

__all__ = ["free_port"]

PORTS: Final = range(20_000, 32_000)
"""Above those that Ray gives its workers, and below those that Linux draws from where a program says 0."""
TRIES: Final = 100


def free_port() -> int:
    """Of TCP, with two more free ones above it: env runners count from it."""
    for _ in range(TRIES):
        port = random.choice(PORTS)
        with ExitStack() as stack:
            try:
                for more in (0, 1, 2):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port + more))
            except OSError:
                continue
        return port
    raise RuntimeError("three free ports in a row were not found")
