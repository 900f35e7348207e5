"""Whether a UDP port of this host is free for a simulator, and who has it where it is not."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from ospbridge.errors import OspBridgeError, SimulatorNotStarted

if TYPE_CHECKING:
    from ospbridge.interface import Endpoint

__all__ = ["check_free"]


def check_free(address: Endpoint, program: str) -> None:
    """Raises SimulatorNotStarted where another process listens there, with its name as far as it may be known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((address.host, address.port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise SimulatorNotStarted(
                    f"{program} cannot be launched at {address}: {error.strerror}", hint="name another port"
                ) from None
        else:
            return
    raise SimulatorNotStarted(
        f"{program} cannot be launched at {address}: {_owner(address) or 'another process'} listens there already",
        hint="end that one, leave out the address to have a free port chosen, or leave out launch to join it",
    )


def _owner(address: Endpoint) -> str:
    """Such as ``process 4711 (NerdSim -p 45454)``; empty where this user may not know."""
    import psutil

    from ospbridge.launch.scheduling import owner_of

    with suppress(OspBridgeError, psutil.Error, OSError):
        owner = owner_of(address)
        return f"process {owner.pid} ({owner.command})"
    return ""
