"""How many files and sockets may be open at once, in programs that serve many."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

__all__ = ["allow_many"]

ENOUGH: Final = 65_536
"""Sixteen hubs with all the connections that each takes, and what these share with the daemon."""


def allow_many() -> None:
    """As many as the system lets this user have.

    The usual 1,024 are for programs that use ``select``, and the environments of several simulators may need more: the
    one that takes the last would keep the daemon from its simulators and from its recordings.
    """
    # A service manager may forbid it, as in our units, which say LimitNOFILE= themselves.
    with suppress(OSError, ValueError):
        allowed, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = ENOUGH if most == resource.RLIM_INFINITY else min(ENOUGH, most)
        if allowed != resource.RLIM_INFINITY and allowed < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
