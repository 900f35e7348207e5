"""What tests over IPv6 need of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["needs_ipv6"]

ADDRESSES = Path("/proc/net/if_inet6")
has_loopback = ADDRESSES.exists() and f"{1:032x}" in ADDRESSES.read_text()
needs_ipv6 = pytest.mark.skipif(not has_loopback, reason="this machine has no IPv6 loopback")
