"""What tests over IPv6 need of the machine."""

from __future__ import annotations

import socket

import pytest

__all__ = ["needs_ipv6"]


def _has_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not _has_loopback(), reason="this machine has no IPv6 loopback")
