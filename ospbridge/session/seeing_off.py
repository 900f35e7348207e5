"""Answers to INITs that were sent again, behind the one that was adopted: a second socket at the session's port.

The session's own is connected to its handler and hears nobody else. The answers come when the server has read on, which
one that serves one client at a time does when this one has left, so they are looked for then, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ospbridge.osp.client.surplus import SurplusMachine
from ospbridge.session.unconnected import Unconnected
from ospbridge.transport.udp import open_beside

if TYPE_CHECKING:
    import socket

    from ospbridge.interface import Endpoint
    from ospbridge.observe.trace import TraceWriter
    from ospbridge.osp.profile import Profile

__all__ = ["SeeingOff"]


class SeeingOff(Unconnected[SurplusMachine]):
    """What comes to a session's port from others than its handler."""

    @classmethod
    def beside(
        cls,
        sock: socket.socket,
        server: Endpoint,
        profile: Profile,
        owed: int,
        *,
        trace: TraceWriter | None = None,
    ) -> SeeingOff | None:
        """For the connected socket of a session whose server owes so many answers. None where that cannot be heard."""
        second = open_beside(sock) if owed > 0 else None
        return None if second is None else cls(second, SurplusMachine(server, profile, owed), trace=trace)

    def begin(self, now: float, give_up: float) -> None:
        """Our handler has left: the server may read on."""
        self.machine.begin(now, give_up)

    def close(self) -> None:
        """Whoever answers from now on is not heard."""
        self.sock.close()
