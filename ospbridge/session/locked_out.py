"""Why a server that answers no INIT may be locked: sessions of ours that ended without a goodbye.

A server that takes one client only, or a bounded number, is silent for as long as it believes dead ones there. Their
leases are found by then, so an error that blamed the address alone would send its reader the wrong way.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ospbridge.errors import SimulatorSilent
from ospbridge.session.lease import stale_leases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ospbridge.interface import Endpoint

__all__ = ["told_of_leases"]

NAMED: Final = 3
NOT_SAID: Final = (
    "`ospbridge restart-communication` says goodbye in its name, and so does whatever takes agents, "
    "`ospbridge connect` for one"
)
IN_VAIN: Final = "nobody heard the goodbye that was said in its name: restart the simulator"
UNITS: Final = ((86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))


@contextmanager
def told_of_leases(server: Endpoint, leases: Path | None, *, said_goodbye: bool) -> Iterator[None]:
    """A SimulatorSilent of the body names the leases that lie there for ``server``.

    ``said_goodbye``: it was tried, for each of them, to free its place.
    """
    try:
        yield
    except SimulatorSilent as error:
        left = _left(server, leases)
        if not left:
            raise
        more = f", and of {len(left) - NAMED} more" if len(left) > NAMED else ""
        raise SimulatorSilent(
            f"{error.message}; it may still wait for {', '.join(left[:NAMED])}{more}",
            hint=f"{IN_VAIN if said_goodbye else NOT_SAID}; else {error.hint}",
        ) from None


def _left(server: Endpoint, leases: Path | None) -> list[str]:
    told = []
    for lease, file in stale_leases(server, leases):
        age = file.age()
        file.abandon()
        whose = "this process" if lease.pid == os.getpid() else f"process {lease.pid}"
        has = f" with {', '.join(lease.agents)}" if lease.agents else ""
        told.append(f"a session of {whose}{has} that ended without a goodbye (lease of {_ago(age)} ago)")
    return told


def _ago(age: float) -> str:
    for seconds, unit in UNITS:
        if age >= 2 * seconds:
            return f"{age / seconds:.0f} {unit}"
    return f"{age:.0f} s"
